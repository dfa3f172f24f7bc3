"""Remove from a grammar what cannot be finished or cannot be reached."""

from __future__ import annotations

from collections.abc import Set

from infernix_plugin.grammar.analysis import references
from infernix_plugin.grammar.ir import NEVER, Alt, Grammar, Node, Ref, Repeat, Seq, alt, repeat, seq


def pruned(grammar: Grammar, productive: Set[str]) -> Grammar:
    """The reachable rules, the entry rule first, without the alternatives that lead to an unproductive rule."""
    kept: dict[str, Node] = {}
    pending = [grammar.root]
    while pending:
        name = pending.pop()
        if name in kept:
            continue
        body = grammar.rules[name]
        kept[name] = body if productive >= set(references(body)) else _without(body, productive)
        pending.extend(reversed(list(references(kept[name]))))
    return Grammar(kept, grammar.root)


def _without(node: Node, productive: Set[str]) -> Node:
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
