"""Keywords for strings."""

from __future__ import annotations

import difflib

from infernix_plugin.errors import UnsupportedSchema, excerpt
from infernix_plugin.grammar.json_schema import formats
from infernix_plugin.grammar.json_schema.json_value import Json
from infernix_plugin.grammar.json_schema.keywords.operands import count, pattern_in
from infernix_plugin.grammar.json_schema.keywords.reading import Reading
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import Pattern, Strings


def min_length(reading: Reading, value: Json, location: str) -> None:
    """At least this many characters, counted after decoding the escapes."""
    reading.narrow(Strings(minimum=count(value, location)))


def max_length(reading: Reading, value: Json, location: str) -> None:
    """At most this many characters, counted after decoding the escapes; at most the setting `max_repetition`."""
    reading.narrow(Strings(maximum=count(value, location)))


def pattern(reading: Reading, value: Json, location: str) -> None:
    """An ECMAScript expression found somewhere in the string; lookaround and inner anchors only outside of loops."""
    if not isinstance(value, str):
        fail("The value must be a regular expression", location)
    reading.narrow(Strings(patterns=(pattern_in(value, reading.options, location),)))


def format_(reading: Reading, value: Json, location: str) -> None:
    """A format of the list below, asserted; any other is refused, or with `unknown_keywords=ignore` passed over."""
    if not isinstance(value, str):
        fail("The value must be the name of a format", location)
    if value in formats.FORMATS:
        reading.narrow(Strings(patterns=(Pattern(value, formats.language(value), "format"),)))
    elif value in formats.NUMBER_FORMATS:
        reading.narrow(formats.NUMBER_FORMATS[value])
    elif value in formats.REFUSED_FORMATS:
        hint = formats.REFUSED_FORMATS[value]
        raise UnsupportedSchema(f"The format {value} is not supported", location=location, hint=hint)
    elif value not in formats.FREE_FORMATS and reading.options.unknown_keywords != "ignore":
        close = difflib.get_close_matches(value, [*formats.FORMATS, *formats.NUMBER_FORMATS], n=1)
        advice = f"did you mean {close[0]}?" if close else "use pattern, or leave format out"
        raise UnsupportedSchema(f"Unknown format {excerpt(value)}", location=location, hint=advice)
