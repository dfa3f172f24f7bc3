"""Keywords for values of any type: what they are, listed or by JSON type."""

from __future__ import annotations

import difflib

from infernix_plugin.errors import UnsupportedSchema, excerpt
from infernix_plugin.grammar.json_schema.json_value import Json, Number, child, shown
from infernix_plugin.grammar.json_schema.keywords.operands import survives, text
from infernix_plugin.grammar.json_schema.keywords.reading import Reading
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import KINDS, Numbers


def type_(reading: Reading, value: Json, location: str) -> None:
    """The JSON types that are allowed; ``integer`` is the part of ``number`` without a fraction."""
    names = value if isinstance(value, list) else [value]
    known = (*KINDS, "integer")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
            fail(
                f"{shown(name)} is not a JSON type",
                location,
                f"did you mean {close[0]}?" if close else f"the types are {', '.join(known)}",
            )
    if not names:
        fail("type lists no type", location)
    reading.keep({"number" if name == "integer" else name for name in names})
    if "number" not in names:
        reading.narrow(Numbers(integer=True))


def enum(reading: Reading, value: Json, location: str) -> None:
    """One of the listed values; those that the other keywords refuse are left out."""
    if not isinstance(value, list):
        fail("The value must be an array", location)
    for index, item in enumerate(value):
        _check_literal(item, child(location, index))
    reading.listed.append(value)


def const(reading: Reading, value: Json, location: str) -> None:
    """Exactly this value."""
    _check_literal(value, location)
    reading.listed.append([value])


def _check_literal(value: Json, location: str) -> None:
    """Refuse a value that we could not write or that a parser would change."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            text(part, location)
        elif isinstance(part, Number) and not survives(part):
            raise UnsupportedSchema(
                f"The number {excerpt(part.text)} is not preserved by int64 and binary64",
                location=location,
                hint="shorten it, or use a string",
            )
        elif isinstance(part, dict):
            pending.extend(part)
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
