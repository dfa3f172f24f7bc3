"""A finite set of strings as a tree in which shared prefixes are written once."""

from __future__ import annotations

from collections.abc import Sequence

from infernix_plugin.errors import ConstraintTooLarge, InvalidChoice
from infernix_plugin.grammar.constraint import check_choices
from infernix_plugin.grammar.expression import choice_of, sequence
from infernix_plugin.grammar.ir import EPSILON, Literal, Node
from infernix_plugin.grammar.options import GrammarOptions

_MAX_BRANCHINGS = 32
"""How many times a path may branch before the rest of its strings is listed flat, so that the tree stays shallow."""


def lower(choices: Sequence[str], options: GrammarOptions) -> Node:
    """The language of exactly ``choices``; duplicates and order carry no meaning.

    Raises:
        InvalidChoice: no choices, or one that is not a string of Unicode scalar values; the location is ``[i]``.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    _check(choices, options)
    return _tree(sorted(set(choices)), 0, 0)


def _check(choices: Sequence[str], options: GrammarOptions) -> None:
    if not choices:
        raise InvalidChoice("the list of choices is empty", hint="give at least one string")
    if len(choices) > options.max_choices:
        raise ConstraintTooLarge(f"{len(choices)} choices; max_choices is {options.max_choices}")
    check_choices(choices)
    size = sum(len(choice.encode("utf-8")) for choice in choices)
    if size > options.max_choice_bytes:
        raise ConstraintTooLarge(f"the choices have {size} bytes; max_choice_bytes is {options.max_choice_bytes}")


def _tree(words: list[str], skip: int, branchings: int) -> Node:
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
