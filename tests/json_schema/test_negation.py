"""Negation, conditions and overlapping ``oneOf``: by example and, for scalars and arrays, exactly at random."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from infernix_plugin.errors import ConstraintError, UnsatisfiableConstraint
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.options import GrammarOptions
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
