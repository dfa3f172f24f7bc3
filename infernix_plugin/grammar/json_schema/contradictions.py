"""Keywords that no value satisfies, alone or together, to be named where a schema is refused."""

from __future__ import annotations

from infernix_plugin.errors import excerpt
from infernix_plugin.grammar.json_schema.json_value import Json, Number

_NUMBERS, _STRINGS, _ARRAYS, _OBJECTS = ("number", "integer"), ("string",), ("array",), ("object",)
_BOUNDS = (
    ("minimum", "maximum", _NUMBERS),
    ("minimum", "exclusiveMaximum", _NUMBERS),
    ("exclusiveMinimum", "maximum", _NUMBERS),
    ("exclusiveMinimum", "exclusiveMaximum", _NUMBERS),
    ("minLength", "maxLength", _STRINGS),
    ("minItems", "maxItems", _ARRAYS),
    ("minContains", "maxItems", _ARRAYS),
    ("minProperties", "maxProperties", _OBJECTS),
)
"""A lower bound, an upper one, and the types whose values both are about."""


_CLOSING = ("additionalProperties", "unevaluatedProperties")
"""Keywords about the members that are not declared."""


def ruled_out(name: str, place: str) -> str:
    """Say why there is no member of a required name.

    Args:
        name: the name.
        place: where ``false`` stands, a JSON Pointer as a URI fragment.
    """
    keyword = place.rpartition("/")[2]
    if keyword not in _CLOSING or (name == keyword and place.endswith(f"/properties/{name}")):
        return f"{excerpt(name)} is required, and its schema allows no value."
    return (
        f"{excerpt(name)} is required, but properties does not declare it and {keyword} is false: "
        "declare it there, or take it out of required."
    )


def contradiction(schema: Json) -> str | None:
    """Say which bounds exclude each other, or what lists no value; ``None`` if nothing is found."""
    if not isinstance(schema, dict):
        return None
    if schema.get("enum") == []:
        return "enum lists no value: list the values that are allowed, or leave it out."
    kind = schema.get("type")
    for low, high, about in _BOUNDS:
        if kind not in about or (low == "minContains" and "contains" not in schema):
            continue
        least, most = schema.get(low), schema.get(high)
        if not isinstance(least, Number) or not isinstance(most, Number) or least.value is None or most.value is None:
            continue
        if least.value > most.value:
            return f"{low} {least.text} is more than {high} {most.text}."
        if least.value == most.value and (low.startswith("exclusive") or high.startswith("exclusive")):
            return f"{low} and {high} are both {least.text}, which leaves nothing between them."
    return None
