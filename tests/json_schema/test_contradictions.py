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
