"""What the user asks the output to be."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infernix_plugin.errors import InvalidChoice, InvalidGrammar, InvalidRegex, InvalidSchema


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
        """GBNF text whose entry rule is ``root``.

        Raises:
            InvalidGrammar: not a string.
        """
        if not isinstance(text, str):
            raise InvalidGrammar(f"a grammar must be a string, not {type(text).__name__}")
        return cls(ConstraintKind.GRAMMAR, text)

    @classmethod
    def json_object(cls) -> OutputConstraint:
        """Any JSON object."""
        return cls(ConstraintKind.JSON_OBJECT)

    @classmethod
    def json_schema(cls, schema: str | bool | Mapping[str, Any]) -> OutputConstraint:
        """A JSON Schema as text or as a decoded document; the declared order of properties is kept.

        Raises:
            InvalidSchema: neither text nor something that JSON can write.
        """
        try:
            text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidSchema(f"the schema cannot be written as JSON: {error}") from None
        return cls(ConstraintKind.JSON_SCHEMA, text)

    @classmethod
    def regex(cls, pattern: str) -> OutputConstraint:
        """An ECMAScript-style regular expression that the whole content must match.

        Raises:
            InvalidRegex: not a string.
        """
        if not isinstance(pattern, str):
            raise InvalidRegex(f"a regular expression must be a string, not {type(pattern).__name__}")
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
    if isinstance(choices, str | bytes | Mapping) or not isinstance(choices, Collection):
        raise InvalidChoice(f"the choices must be a list of strings, not {type(choices).__name__}")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InvalidChoice(f"a choice must be a string, not {type(choice).__name__}", location=f"[{index}]")
        if not choice.isascii() and any("\ud800" <= char <= "\udfff" for char in choice):
            raise InvalidChoice("a lone surrogate is not a Unicode scalar value", location=f"[{index}]")
