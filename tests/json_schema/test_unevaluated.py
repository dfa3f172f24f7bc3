"""``unevaluatedProperties`` and ``unevaluatedItems``: what in-place subschemas evaluate, against a validator."""

import json
from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.json_schema.test_random_schemas import sample
from tests.oracles.ir_matcher import matches

OPTIONS = GrammarOptions()
DEMANDS = st.sampled_from([False, False, {"type": "integer"}, {"const": 1}])
NAMES = ["a", "b", "ab"]
OBJECTS = st.dictionaries(st.sampled_from([*NAMES, "x"]), st.sampled_from([0, 1, "s"]), max_size=3)
ARRAYS = st.lists(st.sampled_from([0, 1, "s", "t"]), max_size=4)
TYPES = st.sampled_from([True, {"type": "integer"}, {"type": "string"}, {"const": 1}])
ABOUT_OBJECTS = {
    "properties": st.dictionaries(st.sampled_from(NAMES), TYPES, min_size=1, max_size=2),
    "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), TYPES, min_size=1, max_size=1),
    "additionalProperties": TYPES,
    "propertyNames": st.sampled_from([True, {"maxLength": 1}]),
    "required": st.lists(st.sampled_from(NAMES), min_size=1, max_size=1),
    "unevaluatedProperties": DEMANDS,
}
ABOUT_ARRAYS = {
    "prefixItems": st.lists(TYPES, min_size=1, max_size=2),
    "items": TYPES,
    "contains": TYPES,
    "minContains": st.integers(0, 2),
    "minItems": st.integers(0, 2),
    "unevaluatedItems": DEMANDS,
}


def schemas(about, inner):
    """Objects with some of the keywords ``about`` one type and some that apply ``inner`` schemas in place."""
    some = st.lists(inner, min_size=1, max_size=2)
    in_place = dict.fromkeys(["allOf", "anyOf", "oneOf"], some) | dict.fromkeys(["if", "then", "else", "not"], inner)
    if "properties" in about:
        in_place["dependentSchemas"] = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=1)
    table = about | in_place
    chosen = st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda keywords: st.fixed_dictionaries({keyword: table[keyword] for keyword in keywords}))


def nested(about):
    leaves = st.booleans() | schemas(about, st.booleans())
    return schemas(about, st.recursive(leaves, lambda inner: schemas(about, inner), max_leaves=4))


def lowered(schema):
    """The grammar, ``None`` if nothing satisfies the schema; a refusal skips the example."""
    try:
        return lower(json.dumps(schema), OPTIONS)
    except UnsatisfiableConstraint:
        return None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nested(ABOUT_OBJECTS), DEMANDS, st.lists(OBJECTS, min_size=6, max_size=6), st.integers(0, 9))
def test_objects_match_in_some_order_exactly_when_they_are_valid(schema, demand, values, seed):
    schema = schema | {"unevaluatedProperties": demand, "type": "object"}
    try:
        grammar = lowered(schema)
    except ConstraintError:
        return
    validator = Draft202012Validator(schema)
    for value in values:
        orders = (json.dumps(dict(members)) for members in permutations(value.items()))
        found = grammar is not None and any(matches(grammar, text) for text in orders)
        assert found == validator.is_valid(value), value
    for text in sample(grammar, seed, 5) if grammar else ():
        assert validator.is_valid(json.loads(text)), text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nested(ABOUT_ARRAYS), DEMANDS, st.lists(ARRAYS, min_size=8, max_size=8), st.integers(0, 9))
def test_arrays_match_exactly_when_they_are_valid(schema, demand, values, seed):
    schema = schema | {"unevaluatedItems": demand, "type": "array"}
    try:
        grammar = lowered(schema)
    except ConstraintError:
        return
    validator = Draft202012Validator(schema)
    for value in values:
        found = grammar is not None and matches(grammar, json.dumps(value))
        assert found == validator.is_valid(value), value
    for text in sample(grammar, seed, 5) if grammar else ():
        assert validator.is_valid(json.loads(text)), text


BRANCHES = {
    "type": "object",
    "properties": {"kind": {"type": "string"}},
    "required": ["kind"],
    "anyOf": [
        {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}},
        {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}},
    ],
    "unevaluatedProperties": False,
}
EXTENDED = {
    "$ref": "#/$defs/base",
    "properties": {"more": {"type": "integer"}},
    "unevaluatedProperties": False,
    "$defs": {"base": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
}


LANGUAGES = [
    (EXTENDED, ['{"more":1,"id":1}', '{"id":1}'], ['{"id":1,"other":1}', '{"more":1}']),
    (
        BRANCHES,
        ['{"kind":"a","x":1}', '{"kind":"b","y":1}', '{"kind":"a"}'],
        ['{"kind":"a","y":1}', '{"kind":"a","x":1,"z":1}', '{"kind":"c"}'],
    ),
    # both branches of anyOf hold, and what each of them evaluates is free
    (
        {"type": "object", "anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
        | {"unevaluatedProperties": False},
        ['{"a":1,"b":1}', '{"b":1}', "{}"],
        ['{"c":1}', '{"a":1,"c":1}'],
    ),
    # names come in declared order
    (
        {"type": "object", "if": {"properties": {"z": {"const": 1}}, "required": ["z"]}}
        | {"then": {"properties": {"a": {}}}, "unevaluatedProperties": False},
        ['{"z":1,"a":2}', "{}"],
        ['{"z":2}', '{"a":2}', '{"z":1,"b":1}'],
    ),
    (
        {"type": "array", "contains": {"type": "string"}, "unevaluatedItems": {"type": "null"}},
        ['["a"]', '[null,"a"]', '["a","b",null]'],
        ["[null]", '["a",1]'],
    ),
    # before 2020-12 contains evaluates nothing
    (
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "array"}
        | {"contains": {"type": "string"}, "unevaluatedItems": {"type": "string"}},
        ['["a"]'],
        ["[]", '["a",1]'],
    ),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), LANGUAGES)
def test_language(schema, inside, outside):
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


def test_a_recursive_schema_is_extended_at_every_level():
    tree = {
        "$id": "tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    strict = {"$id": "https://example.test/strict", "$dynamicAnchor": "node", "$ref": "tree", "$defs": {"tree": tree}}
    grammar = lower(json.dumps(strict | {"unevaluatedProperties": False}), OPTIONS)
    assert matches(grammar, '{"children":[{"data":1}]}')
    assert not matches(grammar, '{"children":[{"daat":1}]}')


def deep(levels):
    schema = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema | {"unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "error", "location"),
    [
        (
            {"anyOf": [{"properties": {str(index): {}}} for index in range(20)], "unevaluatedProperties": False},
            ConstraintTooLarge,
            "#",
        ),
        (deep(100), ConstraintTooLarge, "#" + "/allOf/0" * 65),
        (
            {"dependencies": {"a": {"properties": {"b": {}}}}, "unevaluatedProperties": False},
            UnsupportedSchema,
            "#/dependencies",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "unevaluatedProperties": False},
            UnsupportedSchema,
            "#/unevaluatedProperties",
        ),
        ({"$ref": "#", "unevaluatedProperties": False}, UnsatisfiableConstraint, "#"),
    ],
)
def test_refusals_say_where(schema, error, location):
    with pytest.raises(ConstraintError) as caught:
        lower(json.dumps(schema), OPTIONS)
    assert (type(caught.value), caught.value.location) == (error, location), caught.value
