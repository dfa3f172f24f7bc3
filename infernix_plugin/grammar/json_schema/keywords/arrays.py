"""Keywords for arrays and their items."""

from __future__ import annotations

from infernix_plugin.grammar.json_schema.json_value import Json, child
from infernix_plugin.grammar.json_schema.keywords.operands import count, schemas_in
from infernix_plugin.grammar.json_schema.keywords.reading import Reading
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import Arrays, Count


def items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items after the prefix; an array of schemas is the prefix itself, as before 2020-12."""
    if not isinstance(value, list):
        reading.rest = reading.goal(location)
        return
    if "prefixItems" in reading.schema:
        fail("items cannot be an array next to prefixItems", location)
    reading.prefix = [reading.goal(child(location, index)) for index in range(len(value))]


def additional_items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items after an ``items`` array; without one it says nothing."""
    if isinstance(reading.schema.get("items"), list):
        reading.rest = reading.goal(location)


def prefix_items(reading: Reading, value: Json, location: str) -> None:
    """The schemas of the first items, position by position."""
    reading.prefix = [reading.goal(pointer) for pointer in schemas_in(value, location)]


def min_items(reading: Reading, value: Json, location: str) -> None:
    """At least this many items."""
    reading.narrow(Arrays(minimum=count(value, location)))


def max_items(reading: Reading, value: Json, location: str) -> None:
    """At most this many items; at most the setting `max_repetition`."""
    reading.narrow(Arrays(maximum=count(value, location)))


def contains(reading: Reading, value: Json, location: str) -> None:
    """At least `minContains` items (1 without it) and at most `maxContains` satisfy the schema."""
    if reading.dialect == "draft-04":
        reading.pass_over("contains", location)
        return
    bounds = [
        count(reading.schema[keyword], child(reading.pointer, keyword)) if keyword in reading.schema else default
        for keyword, default in (("minContains", 1), ("maxContains", None))
    ]
    if reading.dialect == "2020-12":
        reading.satisfying.append(reading.subschema(location))
    least, most = (1, None) if reading.dialect in ("draft-06", "draft-07") else bounds
    if least or most is not None:
        reading.narrow(Arrays(counts=(Count(reading.subschema(location), 0, least or 0, most),)))


def contains_bound(reading: Reading, value: Json, location: str) -> None:
    """Read with `contains`; without one, and before draft 2019-09, it says nothing."""
    count(value, location)


def unique_items(reading: Reading, value: Json, location: str) -> None:
    """No two equal items, nor two that read as the same binary64 number; refused beside `contains`."""
    if not isinstance(value, bool):
        fail("The value must be true or false", location)
    if value:
        reading.narrow(Arrays(unique=True))


def unevaluated_items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items that neither a keyword beside it nor an in-place subschema that holds applies to."""
    reading.other_items = reading.unevaluated(location)
