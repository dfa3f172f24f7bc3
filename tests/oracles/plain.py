"""Grammars without intersections and complements: every lexeme that has them as the states of its automaton."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from infernix_plugin.grammar.analysis import fold
from infernix_plugin.grammar.ir import (
    EPSILON,
    Alt,
    And,
    CharSet,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    alt,
    charset,
    seq,
    walk,
)
from infernix_plugin.grammar.json_schema.derivatives import Derivatives

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


class TooLargeError(Exception):
    """The automaton has more states than are worth writing out."""


def plain(grammar: Grammar, max_states: int) -> Grammar:
    """The same language; raises :class:`TooLargeError` past ``max_states`` states of one lexeme."""
    rules: dict[str, Node] = {}

    def replaced(node: Node, below: list[Node]) -> Node:
        match node:
            case Seq():
                return Seq(tuple(below))
            case Alt():
                return Alt(tuple(below))
            case Repeat(_, minimum, maximum):
                return Repeat(below[0], minimum, maximum)
            case Lexeme(item) if any(isinstance(part, And | Not) for part in walk(item)):
                prefix = f"plain_{len(rules)}_"
                rules.update(_states(item, prefix, max_states))
                return Ref(f"{prefix}0")
            case _:
                return node

    bodies = {name: fold(body, replaced, Lexeme) for name, body in grammar.rules.items()}
    return Grammar({**bodies, **rules}, grammar.root)


def _states(node: Node, prefix: str, max_states: int) -> dict[str, Node]:
    derivatives = Derivatives()
    classes = list(_classes(node))
    start = derivatives.adopt(node)
    numbers, pending, rules = {id(start): 0}, [start], {}
    while pending:
        state = pending.pop()
        options: list[Node] = [EPSILON] if derivatives.pool.facts(state).nullable else []
        for letters in classes:
            assert isinstance(letters, CharSet)
            following = derivatives.after(state, chr(letters.ranges[0][0]))
            if derivatives.pool.never is following:
                continue
            if id(following) not in numbers:
                if len(numbers) == max_states:
                    raise TooLargeError
                numbers[id(following)] = len(numbers)
                pending.append(following)
            options.append(seq(letters, Ref(f"{prefix}{numbers[id(following)]}")))
        rules[f"{prefix}{numbers[id(state)]}"] = alt(*options)
    return rules


def _classes(node: Node) -> Iterator[CharSet]:
    """The characters in classes that no set and no literal of the node tells apart."""
    sets = [part.ranges for part in walk(node) if isinstance(part, CharSet)]
    sets += [((ord(char), ord(char)),) for part in walk(node) if isinstance(part, Literal) for char in part.text]
    edges = {0, SURROGATES[0], SURROGATES[1] + 1, LAST + 1}
    edges.update(edge for ranges in sets for low, high in ranges for edge in (low, high + 1))
    found: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    ordered = sorted(edges)
    for low, after in pairwise(ordered):
        if low != SURROGATES[0]:
            inside = tuple(any(first <= low <= last for first, last in ranges) for ranges in sets)
            found.setdefault(inside, []).append((low, after - 1))
    return map(charset, found.values())
