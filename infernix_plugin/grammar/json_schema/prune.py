"""Remove from a grammar what cannot be finished or cannot be reached.

A lexeme counts as one leaf here: it holds no references, and lowering leaves no empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import references
from infernix_plugin.grammar.ir import NEVER, Alt, Grammar, Node, Ref, Repeat, Seq, alt, repeat, seq


def productive_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that derive at least one string."""
    productive: set[str] = set()
    waiting = [*rules]
    while True:
        waiting.reverse()  # chains of rules run in both directions
        failed = []
        for name in budget.watched(waiting):
            if _productive(rules[name], productive):
                productive.add(name)
            else:
                failed.append(name)
        if len(failed) == len(waiting):
            return productive
        waiting = failed


def _productive(node: Node, productive: set[str]) -> bool:
    match node:
        case Ref(name):
            return name in productive
        case Seq(items):
            return all(_productive(item, productive) for item in items)
        case Alt(options):
            return any(_productive(option, productive) for option in options)
        case Repeat(item, minimum):
            return minimum == 0 or _productive(item, productive)
        case _:
            return True


def pruned(grammar: Grammar, productive: set[str]) -> Grammar:
    """The reachable rules, the entry rule first, without the alternatives that lead to an unproductive rule."""
    kept: dict[str, Node] = {}
    pending = [grammar.root]
    for name in budget.drained(pending):
        if name in kept:
            continue
        body = grammar.rules[name]
        kept[name] = body if productive.issuperset(references(body)) else _without(body, productive)
        pending.extend(reversed(references(kept[name])))
    return replace(grammar, rules=kept)


def _without(node: Node, productive: set[str]) -> Node:
    match node:
        case Ref(name):
            return node if name in productive else NEVER
        case Seq(items):
            return seq(*(_without(item, productive) for item in items))
        case Alt(options):
            return alt(*(_without(option, productive) for option in options))
        case Repeat(item, minimum, maximum):
            return repeat(_without(item, productive), minimum, maximum)
        case _:
            return node
