"""JSON values as they were read, and how a place in a document and a value are named in a message.

Numbers keep their source text, because ``1.0`` and ``1`` are the same number but not the same output. A place is
named by its pointer, the URI fragment form of RFC 6901 (``#/properties/a``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from infernix_plugin.errors import excerpt

Json = Any
"""``None``, ``bool``, ``str``, :class:`Number`, ``list`` or ``dict`` of the same."""

ROOT = "#"
_MAX_EXPONENT = 400  # beyond binary64 on both sides, and small enough to compute with exactly
_MAX_NUMBER_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was written."""

    text: str

    @property
    def is_integer_text(self) -> bool:
        """Written without a point and an exponent, so that parsers may keep it exact."""
        return self.text.lstrip("-").isdigit()

    @property
    def value(self) -> Fraction | None:
        """The exact value, or ``None`` when it is far outside binary64 or absurdly long."""
        if len(self.text) > _MAX_NUMBER_LENGTH:
            return None
        try:
            decimal = Decimal(self.text)
        except InvalidOperation:
            return None
        if not decimal.is_finite() or (decimal and abs(decimal.adjusted()) > _MAX_EXPONENT):
            return None
        return Fraction(decimal)


def shown(value: Json) -> str:
    """A value as a message names it, cut to a bounded length."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number():
            return excerpt(value.text)
        case str():
            return excerpt(value)
        case _:
            return f"an {kind_of(value)}"


def kind_of(value: Json) -> str:
    """The JSON type of a value of this module or of :mod:`json`: ``null``, ``boolean``, ``number``, ``string``, ..."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case Number() | int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def identity(value: Json) -> Hashable:
    """Equal for equal JSON values and only for them: numbers by value, objects without regard to order."""
    kind = kind_of(value)
    match value:
        case Number():
            return kind, value.text if value.value is None else value.value
        case list():
            return kind, tuple([identity(item) for item in value])
        case dict():
            return kind, frozenset([(name, identity(item)) for name, item in value.items()])
    return kind, value


def child(pointer: str, *tokens: str | int) -> str:
    """The pointer of a place below ``pointer``."""
    return "/".join([pointer, *(str(token).replace("~", "~0").replace("/", "~1") for token in tokens)])
