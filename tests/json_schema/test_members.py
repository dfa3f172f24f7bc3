"""Members by pattern, by number and by dependency, by example; the random tests know these keywords too."""

import json

import pytest

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import matches

OPTIONS = GrammarOptions()
INTEGER = {"type": "integer"}
ABC = {"a": {}, "b": {}, "c": {}}

MEMBERS = [
    # keywords beside type: object, objects in the language, objects outside it
    (
        {
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "patternProperties": {"^g_": INTEGER},
            "additionalProperties": False,
        },
        ['{"name":"x","g_1":2}', '{"name":"x"}', '{"name":"x","g_":1,"g_\\n":2}'],
        ['{"name":"x","h":2}', '{"name":"x","g_1":"s"}', '{"g_1":2}'],
    ),
    (
        {
            "properties": {"score": INTEGER},
            "required": ["score"],
            "patternProperties": {"^score$": {"minimum": 3}},
            "additionalProperties": False,
        },
        ['{"score":3}'],
        ['{"score":1}', '{"score":3,"x":1}', '{"score":3.5}', "{}"],
    ),
    (
        {"patternProperties": {"a": INTEGER, "b": {"minimum": 3}}, "additionalProperties": {"type": "null"}},
        ['{"a":1,"b":"x","ab":3,"c":null}', "{}"],
        ['{"ab":2}', '{"ab":"x"}', '{"c":1}', '{"b":2}'],
    ),
    ({"patternProperties": {"": INTEGER}, "additionalProperties": False}, ['{"x":1}'], ['{"x":null}']),
    (
        {"allOf": [{"patternProperties": {"^a": INTEGER}, "additionalProperties": False}, {"required": ["ab"]}]},
        ['{"ab":1}', '{"ab":1,"a":2}'],
        ['{"a":1}', '{"ab":"x"}', '{"ab":1,"b":1}'],
    ),
    (
        {"propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": INTEGER},
        ['{"a":1}', "{}"],
        ['{"a":"x"}', '{"A":1}', '{"a":1,"":1}'],
    ),
    ({"propertyNames": {"enum": ["a", "b", 7]}}, ['{"b":1,"a":3}', '{"a":1}'], ['{"c":1}', '{"7":1}']),
    ({"propertyNames": {"maxLength": 2}, "properties": {"abc": {}, "\n": {}}}, ['{"\\n":1,"a":1}'], ['{"abc":1}']),
    ({"propertyNames": {"anyOf": [{"maxLength": 1}, {"format": "uuid"}]}}, ['{"a":1}'], ['{"ab":1}']),
    ({"propertyNames": False}, ["{}", "{ }"], ['{"a":1}']),
    ({"minProperties": 1}, ['{"a":1}', '{"a":1,"b":2}'], ["{}"]),
    ({"maxProperties": 1}, ['{"a":1}', "{}", "{ }"], ['{"a":1,"b":2}']),
    ({"maxProperties": 0, "properties": {"a": {}}}, ["{}"], ['{"a":1}', '{"b":1}']),
    (
        {"properties": ABC, "minProperties": 2, "maxProperties": 2, "additionalProperties": False},
        ['{"a":1,"b":1}', '{"a":1,"c":1}', '{"b":1,"c":1}'],
        ["{}", '{"a":1}', '{"a":1,"b":1,"c":1}', '{"a":1,"z":1}'],
    ),
    (
        {"properties": ABC, "required": ["b"], "minProperties": 2, "maxProperties": 3},
        ['{"a":1,"b":1}', '{"b":1,"z":1}', '{"b":1,"c":1}', '{"a":1,"b":1,"z":1}', '{"b":1,"y":1,"z":1}'],
        ["{}", '{"a":1}', '{"b":1}', '{"z":1,"y":1}', '{"a":1,"b":1,"c":1,"d":1}'],
    ),
    ({"minProperties": 2, "required": ["a"]}, ['{"a":1,"b":1}'], ['{"a":1}', '{"a":1,"a":1}']),
    (
        {"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
        ['{"a":1,"b":1}', '{"b":1}', "{}", '{"z":1}'],
        ['{"a":1}', '{"a":1,"z":1}'],
    ),
    (
        {
            "properties": {"a": {}, "b": {}},
            "dependencies": {"b": ["a"], "a": {"properties": {"b": {"type": "null"}}}},
        },
        ['{"a":1,"b":null}', '{"a":2}', "{}"],
        ['{"b":1}', '{"a":1,"b":1}'],
    ),
    (
        {"properties": {"a": {}}, "dependentSchemas": {"a": {"required": ["b"], "maxProperties": 2}}},
        ['{"a":1,"b":1}', "{}", '{"x":1,"y":1,"z":1}'],
        ['{"a":1}', '{"a":1,"b":1,"c":1}'],
    ),
    (
        {"properties": {"a": {}}, "required": ["a"], "dependentRequired": {"a": ["b"], "b": ["c"]}},
        ['{"a":1,"b":1,"c":1}'],
        ['{"a":1}', '{"a":1,"b":1}'],
    ),
]


@pytest.mark.parametrize(("keywords", "inside", "outside"), MEMBERS)
def test_members(keywords, inside, outside):
    grammar = lower(json.dumps(keywords | {"type": "object"}), OPTIONS)
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


@pytest.mark.parametrize(("keywords", "_inside", "_outside"), MEMBERS)
def test_other_types_are_free(keywords, _inside, _outside):
    grammar = lower(json.dumps(keywords), OPTIONS)
    assert matches(grammar, '["a"]')
    assert matches(grammar, "1")


def test_finite_values_are_filtered():
    listed = [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {}]
    schema = {"enum": listed, "propertyNames": {"const": "a"}, "minProperties": 1}
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [matches(grammar, json.dumps(value)) for value in listed] == [True, False, False, False]


def test_many_patterns_and_dependencies_cost_little():
    disjoint = {f"^{index}_": {"const": index} for index in range(20)}
    grammar = lower(json.dumps({"type": "object", "patternProperties": disjoint}), OPTIONS)
    assert matches(grammar, '{"7_x":7,"19_":19,"20_":[]}')
    assert not matches(grammar, '{"7_x":8}')
    for hostile in (
        {"patternProperties": {letter: {} for letter in "abcdefgh"}},
        {"dependentRequired": {f"{index}": ["x"] for index in range(40)}},
    ):
        with pytest.raises(ConstraintTooLarge):
            lower(json.dumps(hostile), OPTIONS)
