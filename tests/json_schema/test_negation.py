"""Negation, conditions and overlapping ``oneOf``: by example and, for scalars and arrays, exactly at random."""

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
AB = {"properties": {"a": {}, "b": {}}, "type": "object"}

CASES = [
    # schema, texts in the language, texts outside it
    ({"type": "string", "not": {"enum": ["x"]}}, ['"y"', '"xx"', '""'], ['"x"', "1"]),
    ({"not": {"type": "number"}}, ['"y"', "null", "{}"], ["1", "1.5"]),
    ({"not": {"maximum": 300}}, ["301", "300.5"], ["300", '"a"']),
    ({"type": "integer", "not": {"enum": [1, 3]}}, ["2", "0", "4", "-7"], ["1", "3"]),
    ({"not": {"pattern": "^a*$"}}, ['"b"'], ['"a"', '""', "1"]),
    ({"type": "string", "minLength": 1, "not": {"pattern": "^[.,*\\s]+$"}}, ['"b"'], ['"."', '""', '" "']),
    ({"type": "string", "not": {"format": "date"}}, ['"b"', '"2025-02-29"'], ['"2024-02-29"']),
    ({"not": {"not": {"type": "string", "pattern": "a"}}}, ['"ba"'], ['"b"']),
    ({"enum": [1, 2, "a"], "not": {"enum": [1, "a"]}}, ["2"], ["1", '"a"']),
    (AB | {"not": {"required": ["a", "b"]}}, ['{"b":1}', '{"a":1}', "{}"], ['{"a":1,"b":2}']),
    (AB | {"not": {"allOf": [{"required": ["a"]}, {"required": ["b"]}]}}, ['{"a":1}', "{}"], ['{"a":1,"b":2}']),
    (AB | {"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}, ['{"c":1}'], ['{"a":1}', '{"b":2}']),
    (AB | {"not": {"properties": {"a": {"const": 1}}}}, ['{"a":2}'], ['{"a":1}', "{}"]),
    (AB | {"not": {"minProperties": 2}}, ['{"a":2}', "{}"], ['{"a":1,"b":1}']),
    ({"type": "object", "not": {"const": {}}}, ['{"a":2}'], ["{}"]),
    (
        {"type": "array", "not": {"prefixItems": [{"type": "string"}, {"type": "null"}]}},
        ["[1]", '["a",1]'],
        ["[]", '["a"]', '["a",null]'],
    ),
    (
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]},
        ["-3", "20"],
        ["5", "0", "10"],
    ),
    ({"oneOf": [{"type": "string"}, {"maxLength": 3}, {"type": "null"}]}, ['"abcd"', "1"], ['"abc"', "null"]),
    (AB | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}', '{"b":2}'], ["{}", '{"a":1,"b":1}']),
    (
        {"items": {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "type": "array"},
        ["[1,3]", "[]"],
        ["[2]", "[1,2]"],
    ),
    (
        {
            "type": "object",
            "properties": {"k": {"enum": ["a", "b"]}, "v": {}},
            "required": ["k"],
            "if": {"properties": {"k": {"const": "a"}}},
            "then": {"required": ["v"]},
            "else": {"not": {"required": ["v"]}},
        },
        ['{"k":"a","v":1}', '{"k":"b"}'],
        ['{"k":"a"}', '{"k":"b","v":1}'],
    ),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, ['"ab"', "1"], ['"a"']),
    ({"if": {"type": "string"}, "else": {"type": "null"}}, ['"ab"', "null"], ["1"]),
    ({"if": {"type": "string"}}, ['"ab"', "1"], []),
    ({"type": "string", "not": {"items": {"type": "null"}, "maxLength": 2}}, ['"abc"'], ['"ab"', "[1]"]),
    (
        {
            "oneOf": [
                {"items": {"type": "null"}, "type": ["array", "string"], "maxLength": 2},
                {"minLength": 2, "type": "string"},
            ]
        },
        ['"a"', '"abc"', "[null]"],
        ['"ab"', "[1]"],
    ),
    ({"then": {"type": "string"}}, ["1"], []),
    # options that overlap, of which some hold options that overlap
    (
        {"oneOf": [{"oneOf": [{"minimum": 0}, {"maximum": 9}]}, {"oneOf": [{"type": "integer"}, {"minimum": 20}]}]},
        ["-1.5", "5", "9", "15.5", "20", "30"],
        ["-1", "15", "20.5"],
    ),
    # a shape that was looked at before its options were found to overlap
    (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"items": {"$ref": "#/$defs/x"}, "type": "array"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "$defs": {"x": {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}},
        },
        ['{"a":1}', '{"b":[3,1]}'],
        ['{"a":2}', '{"b":[2]}', '{"a":1,"b":[]}', "{}"],
    ),
    # options that overlap only where they say nothing
    (
        {"oneOf": [{"properties": {"t": {"const": kind}, kind: {}}, "required": ["t"]} for kind in "abcdefghijklm"]},
        ['{"t":"a"}', '{"t":"m","m":1,"a":1}'],
        ['"a"', "1", "{}", '{"t":"n"}', '{"a":1}'],
    ),
    # one undeclared member breaks several schemas at once
    (
        {"type": "object", "not": {"anyOf": [{"properties": {n: {}}, "additionalProperties": False} for n in "ab"]}},
        ['{"x":1}', '{"a":1,"b":1}', '{"a":1,"x":1}', '{"x":1,"y":1}'],
        ["{}", '{"a":1}', '{"b":1}'],
    ),
    (
        {"type": "object", "maxProperties": 1, "allOf": [{"not": {"patternProperties": {n: False}}} for n in "ab"]},
        ['{"ab":1}', '{"xbya":1}'],
        ["{}", '{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
    ),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), CASES)
def test_language(schema, inside, outside):
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


scalars = st.sampled_from([None, True, False, 0, 1, -3, 7, 12, 2.5, "", "a", "ab", "b", "abc"])
instances = scalars | st.lists(scalars, max_size=3)


def keywords(inner):
    return {
        "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array"]),
        "enum": st.lists(scalars, min_size=1, max_size=3),
        "const": scalars,
        "minimum": st.integers(-3, 8),
        "exclusiveMaximum": st.integers(-3, 13),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "pattern": st.sampled_from(["a", "^a", "b$", "^[ab]*$"]),
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "items": inner,
        "contains": inner,
        "minContains": st.integers(0, 2),
        "maxContains": st.integers(0, 2),
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=3),
    }


@st.composite
def objects(draw, inner):
    table = keywords(inner)
    return {keyword: draw(table[keyword]) for keyword in draw(st.lists(st.sampled_from(sorted(table)), max_size=3))}


schemas = st.recursive(objects(st.booleans()), objects, max_leaves=6)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas, values=st.lists(instances, min_size=8, max_size=8))
def test_values_match_exactly_when_they_are_valid(schema, values):
    grammar = None
    try:
        grammar = lower(json.dumps(schema), OPTIONS)
    except UnsatisfiableConstraint:
        pass
    except ConstraintError:
        return
    for value in values:
        found = grammar is not None and matches(grammar, json.dumps(value))
        assert found == Draft202012Validator(schema).is_valid(value), value


MEMBERS = st.dictionaries(
    st.sampled_from(["a", "b", "ab", "x"]), st.sampled_from([0, 1, "a", {}, {"a": 1}]), max_size=3
)


def member_keywords(inner):
    return {
        "type": st.sampled_from(["object", "integer", "string"]),
        "enum": st.lists(MEMBERS, min_size=1, max_size=3),
        "const": st.sampled_from([0, 1, {"a": 1}]),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(["a", "^a", "b$"]),
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=1, max_size=2),
        "required": st.lists(st.sampled_from(["a", "b"]), max_size=1),
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b$", "^.b"]), inner, min_size=1, max_size=1),
        "additionalProperties": inner,
        "propertyNames": inner,
        "minProperties": st.integers(0, 1),
        "maxProperties": st.integers(0, 3),
        "not": inner,
        "oneOf": st.lists(inner, min_size=1, max_size=2),
    }


@st.composite
def member_schemas(draw, inner):
    table = member_keywords(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(table)), max_size=3, unique=True))
    return {keyword: draw(table[keyword]) for keyword in chosen}


object_schemas = member_schemas(
    st.recursive(st.booleans() | member_schemas(st.booleans()), member_schemas, max_leaves=4)
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=object_schemas, values=st.lists(MEMBERS, min_size=6, max_size=6), seed=st.integers(0, 9))
def test_objects_match_in_some_order_exactly_when_they_are_valid(schema, values, seed):
    try:
        grammar = lower(json.dumps(schema), OPTIONS)
    except UnsatisfiableConstraint:
        grammar = None
    except ConstraintError:
        return
    validator = Draft202012Validator(schema)
    for value in values:
        orders = (json.dumps(dict(members)) for members in permutations(value.items()))
        found = grammar is not None and any(matches(grammar, text) for text in orders)
        assert found == validator.is_valid(value), value
    if grammar is not None:
        for text in sample(grammar, seed, 5):
            assert validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        (
            {"type": "object", "not": {"additionalProperties": {"type": "integer"}}},
            ['{"a":1,"b":"x"}', '{"b":"x"}'],
            ["{}", '{"a":1}', '{"a":"x","a":1}'],  # parsers keep the last of equal names
        ),
        (
            {"properties": {"a": {}}, "required": ["a"], "not": {"propertyNames": {"pattern": "^a"}}},
            ['{"a":1,"b":1}'],
            ['{"a":1}', '{"a":1,"ab":1}', "1"],
        ),
        (
            {
                "type": "object",
                "oneOf": [
                    {
                        "properties": {"a": {"type": "string"}, "b": {}},
                        "required": ["a"],
                        "additionalProperties": False,
                    },
                    {
                        "properties": {"a": {"type": "string"}, "c": {}},
                        "required": ["a"],
                        "additionalProperties": False,
                    },
                ],
            },
            ['{"a":"x","b":1}', '{"a":"x","c":1}'],
            ['{"a":"x"}', '{"a":1,"b":1}', '{"a":"x","b":1,"c":1}', '{"a":"x","d":1}'],
        ),
        (
            {"enum": [{"a": [1, 2]}, {"a": 1}], "not": {"additionalProperties": {"type": "integer"}}},
            ['{"a":[1,2]}'],
            ['{"a":1}'],
        ),
        ({"enum": [[1], [2]], "not": {"enum": [[1], {"a": 1}]}}, ["[2]"], ["[1]"]),
        ({"type": "array", "not": {"items": {"type": "null"}}}, ["[null,1,null]", "[1]"], ["[]", "[null]"]),
        (
            {"type": "array", "contains": {"const": 1}, "maxContains": 2, "maxItems": 4},
            ["[1]", "[0,1,0,1]"],
            ["[]", "[0]", "[1,1,1]", "[0,0,0,0,1]"],
        ),
        (
            {"contains": {"type": "null"}, "minContains": 2, "items": {"type": ["null", "string"]}},
            ['[null,"a",null]'],
            ["[null]"],
        ),
        ({"type": "array", "contains": {"const": 1}, "minContains": 0}, ["[]", "[2]"], []),
        ({"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 0}, ["[]", "[2]"], ["[1]"]),
    ],
)
def test_what_some_item_or_member_has_to_be(schema, inside, outside):
    test_language(schema, inside, outside)


def test_two_conditions_on_undeclared_members_are_refused():
    schema = {"allOf": [{"not": {"patternProperties": {letter: False}}} for letter in "ab"], "type": "object"}
    with pytest.raises(UnsupportedSchema, match="several conditions") as caught:
        lower(json.dumps(schema), OPTIONS)
    assert caught.value.location.startswith("#/allOf/")


def test_the_cases_of_counts_are_limited():
    with pytest.raises(ConstraintTooLarge, match="contains"):
        lower(json.dumps({"type": "array", "contains": {"const": 1}, "maxContains": 90, "maxItems": 90}), OPTIONS)
