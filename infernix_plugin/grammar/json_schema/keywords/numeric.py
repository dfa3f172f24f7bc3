"""Keywords for numbers."""

from __future__ import annotations

from infernix_plugin.grammar.json_schema.json_value import Json
from infernix_plugin.grammar.json_schema.keywords.operands import bound
from infernix_plugin.grammar.json_schema.keywords.reading import Reading
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import Bound, Numbers


def minimum(reading: Reading, value: Json, location: str) -> None:
    """At least this, or more than this with draft-04's ``exclusiveMinimum: true``."""
    exclusive = reading.schema.get("exclusiveMinimum") is True
    reading.narrow(Numbers(lower=Bound(bound(value, location).value, exclusive)))


def maximum(reading: Reading, value: Json, location: str) -> None:
    """At most this, or less than this with draft-04's ``exclusiveMaximum: true``."""
    exclusive = reading.schema.get("exclusiveMaximum") is True
    reading.narrow(Numbers(upper=Bound(bound(value, location).value, exclusive)))


def exclusive_minimum(reading: Reading, value: Json, location: str) -> None:
    """More than this."""
    if not _draft4_flag(reading, value, location):
        reading.narrow(Numbers(lower=Bound(bound(value, location).value, exclusive=True)))


def exclusive_maximum(reading: Reading, value: Json, location: str) -> None:
    """Less than this."""
    if not _draft4_flag(reading, value, location):
        reading.narrow(Numbers(upper=Bound(bound(value, location).value, exclusive=True)))


def _draft4_flag(reading: Reading, value: Json, location: str) -> bool:
    if not isinstance(value, bool):
        return False
    if reading.document.references.declares_dialect and reading.dialect != "draft-04":
        fail("A boolean exclusive bound is draft-04", location, "write the bound itself as a number")
    return True


def multiple_of(reading: Reading, value: Json, location: str) -> None:
    """A multiple of this, exactly as decimal numbers; refused where that needs too large a grammar."""
    step = bound(value, location).value
    if step <= 0:
        fail("The value must be greater than 0", location)
    reading.narrow(Numbers(integer=True) if step == 1 else Numbers(multiples=frozenset([step])))
