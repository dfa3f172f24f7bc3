"""A finite set of strings as a tree in which shared prefixes are written once."""

from __future__ import annotations

from collections.abc import Sequence

from infernix_plugin.grammar.expression import choice_of, sequence
from infernix_plugin.grammar.ir import EPSILON, Literal, Node, Words

_MAX_BRANCHINGS = 32
"""How many times a path may branch before the rest of its strings is listed flat, so that the tree stays shallow."""


def prefix_tree(item: Words) -> Node:
    """The same language without :class:`~infernix_plugin.grammar.ir.Words`."""
    return _tree(item.texts, 0, 0)


def _tree(words: Sequence[str], skip: int, branchings: int) -> Node:
    """The tree of sorted distinct ``words`` without their first ``skip`` characters, which they share."""
    if len(words) == 1:
        return Literal(words[0][skip:])
    shared = _shared_length(words[0], words[-1], skip)
    head = Literal(words[0][skip:shared])
    if branchings == _MAX_BRANCHINGS:
        return sequence([head, choice_of([Literal(word[shared:]) for word in words])])
    branches: list[Node] = []
    first = 0
    if len(words[0]) == shared:
        branches.append(EPSILON)
        first = 1
    for last in range(first + 1, len(words) + 1):
        if last == len(words) or words[last][shared] != words[first][shared]:
            branches.append(_tree(words[first:last], shared, branchings + 1))
            first = last
    return sequence([head, choice_of(branches)])


def _shared_length(first: str, last: str, start: int) -> int:
    """How many characters the sorted list from ``first`` to ``last`` has in common, at least ``start``."""
    length = start
    for left, right in zip(first[start:], last[start:], strict=False):
        if left != right:
            break
        length += 1
    return length
