"""A choice: exactly the given strings."""

from __future__ import annotations

from collections.abc import Sequence

from infernix_plugin.errors import ConstraintTooLarge, InvalidChoice
from infernix_plugin.grammar.constraint import check_choices
from infernix_plugin.grammar.ir import Node, words
from infernix_plugin.grammar.options import GrammarOptions


def lower(choices: Sequence[str], options: GrammarOptions) -> Node:
    """The language of exactly ``choices``; duplicates and order carry no meaning.

    Raises:
        InvalidChoice: no choices, or one that is not a string of Unicode scalar values; the location is ``[i]``.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    if not choices:
        raise InvalidChoice("the list of choices is empty", hint="give at least one string")
    check_number(choices, options)
    check_choices(choices)
    size = sum(len(choice) if choice.isascii() else len(choice.encode("utf-8")) for choice in choices)
    if size > options.max_choice_bytes:
        raise ConstraintTooLarge(f"the choices have {size} bytes; max_choice_bytes is {options.max_choice_bytes}")
    return words(choices)


def check_number(choices: Sequence[object], options: GrammarOptions) -> None:
    """Refuse too many choices before anything is done for each of them.

    Raises:
        ConstraintTooLarge: more than ``max_choices``.
    """
    if len(choices) > options.max_choices:
        raise ConstraintTooLarge(f"{len(choices)} choices; max_choices is {options.max_choices}")
