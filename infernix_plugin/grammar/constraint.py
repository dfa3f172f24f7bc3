"""What the user asks the output to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infernix_plugin.errors import InvalidChoice


class ConstraintKind(StrEnum):
    """The five kinds of content constraint."""

    GRAMMAR = "grammar"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    CHOICE = "choice"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """One content constraint: its kind and its own copy of the source.

    ``source`` is the grammar text, the schema as JSON text in the user's key order, the regex, or ``""`` for
    ``json_object``. ``choices`` is set for ``choice`` only: distinct strings, sorted, because their order carries no
    meaning and equal sets must be equal constraints.
    """

    kind: ConstraintKind
    source: str = ""
    choices: tuple[str, ...] = ()

    @classmethod
    def grammar(cls, text: str) -> OutputConstraint:
        """GBNF text whose entry rule is ``root``."""
        return cls(ConstraintKind.GRAMMAR, text)

    @classmethod
    def json_object(cls) -> OutputConstraint:
        """Any JSON object."""
        return cls(ConstraintKind.JSON_OBJECT)

    @classmethod
    def json_schema(cls, schema: str | bool | Mapping[str, Any]) -> OutputConstraint:
        """A JSON Schema as text or as a decoded document; the declared order of properties is kept."""
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        return cls(ConstraintKind.JSON_SCHEMA, text)

    @classmethod
    def regex(cls, pattern: str) -> OutputConstraint:
        """An ECMAScript-style regular expression that the whole content must match."""
        return cls(ConstraintKind.REGEX, pattern)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> OutputConstraint:
        """Exactly one of the given strings, byte for byte; duplicates and order carry no meaning.

        Raises:
            InvalidChoice: not a list, or an item is not a string of Unicode scalar values; located as ``[i]``.
        """
        check_choices(choices)
        return cls(ConstraintKind.CHOICE, "", tuple(sorted(set(choices))))


def check_choices(choices: Sequence[object]) -> None:
    """Check that every choice is a string of Unicode scalar values.

    Raises:
        InvalidChoice: one is not; located as ``[i]`` in the order given.
    """
    if isinstance(choices, str | bytes):
        raise InvalidChoice("the choices must be a list of strings, not one string", hint="write it as a list")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InvalidChoice(f"a choice must be a string, not {type(choice).__name__}", location=f"[{index}]")
        if not choice.isascii() and any("\ud800" <= char <= "\udfff" for char in choice):
            raise InvalidChoice("a lone surrogate is not a Unicode scalar value", location=f"[{index}]")
