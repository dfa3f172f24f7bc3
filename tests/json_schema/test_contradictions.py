"""A schema that two bounds make empty is refused with the bounds by name."""

import json

import pytest

from infernix_plugin import UnsatisfiableConstraint
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.json_schema.contradictions import contradiction
from infernix_plugin.grammar.json_schema.reader import read
from infernix_plugin.grammar.options import GrammarOptions

EMPTY = [
    ("number", {"minimum": 5, "maximum": 3}, "minimum 5 is more than maximum 3."),
    ("integer", {"minimum": 5, "exclusiveMaximum": 3}, "minimum 5 is more than exclusiveMaximum 3."),
    ("number", {"exclusiveMinimum": 2, "maximum": 2}, "exclusiveMinimum and maximum are both 2"),
    ("number", {"exclusiveMinimum": 2, "exclusiveMaximum": 2}, "exclusiveMinimum and exclusiveMaximum are both 2"),
    ("string", {"minLength": 4, "maxLength": 1}, "minLength 4 is more than maxLength 1."),
    ("array", {"minItems": 2, "maxItems": 1}, "minItems 2 is more than maxItems 1."),
    ("array", {"contains": {}, "minContains": 3, "maxItems": 1}, "minContains 3 is more than maxItems 1."),
    ("object", {"minProperties": 2, "maxProperties": 1}, "minProperties 2 is more than maxProperties 1."),
]


@pytest.mark.parametrize(("kind", "bounds", "said"), EMPTY, ids=lambda one: str(one)[:30])
def test_the_bounds_are_named_at_their_place(kind, bounds, said):
    for schema, place in (
        ({"type": kind, **bounds}, "#"),
        ({"type": "object", "properties": {"a": {"type": kind, **bounds}}, "required": ["a"]}, "#/properties/a"),
    ):
        with pytest.raises(UnsatisfiableConstraint) as refused:
            lower(json.dumps(schema), GrammarOptions())
        assert refused.value.location == place
        assert refused.value.hint.startswith(said)


def refused(schema):
    with pytest.raises(UnsatisfiableConstraint) as error:
        lower(json.dumps(schema), GrammarOptions())
    return error.value.location, error.value.hint


def test_an_enum_without_values_is_named_at_its_place():
    said = "enum lists no value: list the values that are allowed, or leave it out."
    assert refused({"enum": []}) == ("#", said)
    assert refused({"type": "array", "items": {"enum": []}, "minItems": 1}) == ("#/items", said)


NOTHING_ELSE = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({**NOTHING_ELSE, "required": ["b"]}, "#/additionalProperties"),
        ({**NOTHING_ELSE, "properties": {"a": {}}, "required": ["a", "b"]}, "#/additionalProperties"),
        ({**NOTHING_ELSE, "patternProperties": {"^x": {}}, "required": ["b"]}, "#/additionalProperties"),
        (
            {"type": "object", "properties": {"q": {**NOTHING_ELSE, "required": ["b"]}}, "required": ["q"]},
            "#/properties/q/additionalProperties",
        ),
        (
            {
                "allOf": [
                    {**NOTHING_ELSE, "properties": {"a": {}}},
                    {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]},
                ]
            },
            "#/allOf/0/additionalProperties",
        ),
    ],
)
def test_a_required_name_that_is_closed_out_is_named(schema, place):
    said = "'b' is required, but properties does not declare it and additionalProperties is false: "
    at, hint = refused(schema)
    assert at == place
    assert hint.startswith(said)


def test_other_ways_to_close_a_name_out():
    at, hint = refused({"type": "object", "required": ["b"], "unevaluatedProperties": False})
    assert (at, "and unevaluatedProperties is false" in hint) == ("#/unevaluatedProperties", True)
    for name in ("b", "additionalProperties"):
        at, hint = refused({"type": "object", "properties": {name: False}, "required": [name]})
        assert (at, hint) == (f"#/properties/{name}", f"{name!r} is required, and its schema allows no value.")
    assert refused({"type": "array", "items": False, "minItems": 1}) == ("#/items", None)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "number", "minimum": 3, "maximum": 3},
        {"type": "string", "minimum": 5, "maximum": 3},
        {"type": "array", "minContains": 3, "maxItems": 1},
        {"minimum": 5, "maximum": 3},
    ],
)
def test_what_leaves_a_value_is_no_contradiction(schema):
    assert contradiction(read(json.dumps(schema), GrammarOptions()).root) is None
