"""Text in which some other texts do not occur, as an expression that is quick to mask where that is possible."""

from __future__ import annotations

from collections.abc import Collection

from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    Literal,
    Node,
    Not,
    alt,
    chars,
    complement,
    optional,
    repeat,
    seq,
    words,
)

_Tree = dict[str, "_Tree"]


def text_without(patterns: Collection[str]) -> Node:
    """Every text that holds none of ``patterns``, which are not empty."""
    if not patterns:
        return repeat(ANY_CHAR)
    first = {pattern[0] for pattern in patterns}
    if any(char in first for pattern in patterns for char in pattern[1:]):
        return Not(seq(repeat(ANY_CHAR), words(patterns), repeat(ANY_CHAR)))
    # A pattern can only begin at one of the first characters, so nothing has to be remembered but where it began.
    tree: _Tree = {}
    for pattern in patterns:
        below = tree
        for char in pattern:
            below = below.setdefault(char, {})
    line = repeat(complement(chars("".join(first))))
    begun = [seq(Literal(char), _unfinished(below, first, line)) for char, below in tree.items() if below]
    return seq(line, repeat(alt(*begun)))


def _unfinished(tree: _Tree, first: Collection[str], line: Node) -> Node:
    """What may stand behind the beginning of a pattern, up to where one may begin again; ``line`` holds no such."""
    other = seq(complement(chars("".join({*tree, *first}))), line)
    longer = (seq(Literal(char), _unfinished(below, first, line)) for char, below in tree.items() if below)
    return optional(alt(other, *longer))


def overlap(patterns: Collection[str]) -> bool:
    """Whether two occurrences of ``patterns`` may share characters, or one of them is empty."""
    texts = set(patterns)
    return any(
        not one
        or any(one != other and one in other for other in texts)
        or any(other.startswith(one[start:]) for start in range(1, len(one)) for other in texts)
        for one in texts
    )
