"""What is plain of a value: facts never rule out a value that the schema allows, and they see discriminators."""

import json

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from infernix_plugin.grammar.json_schema import facts, lower
from infernix_plugin.grammar.json_schema.json_value import Number
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import matches

VALUES = st.sampled_from(["null", "true", "false", "0", "1", "1.0", "1.5", '"a"', '"b"', "[]", "[1]", "{}", '{"a":1}'])
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SCHEMAS = st.booleans() | st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2),
        "const": VALUES.map(json.loads),
        "enum": st.lists(VALUES.map(json.loads), max_size=3),
        "title": st.just("t"),
        "minLength": st.integers(0, 2),
        "minimum": st.integers(0, 2),
    },
)


def read(value):
    return json.loads(json.dumps(value), parse_int=Number, parse_float=Number)


@given(st.lists(st.tuples(SCHEMAS, st.booleans()), min_size=1, max_size=3), VALUES)
def test_facts_never_rule_out_a_value_that_is_allowed(schemas, text):
    value = json.loads(text)
    known = facts.of({"const": json.loads(text, parse_int=Number, parse_float=Number)})
    for schema, holds in schemas:
        if Draft202012Validator(schema).is_valid(value) != holds:
            return
        known &= facts.of(read(schema)) if holds else facts.of_others(read(schema))
    assert not known.contradictory


def test_facts_see_what_is_plain():
    string, a, b = ({"type": "string"}, {"const": "a"}, {"enum": ["b", 1]})
    assert (facts.of(a) & facts.of(b)).contradictory
    assert (facts.of(string) & facts.of({"type": ["null", "object"]})).contradictory
    assert (facts.of(string) & facts.of({"enum": [1, None]})).contradictory
    assert (facts.of(string) & facts.of_others(string)).contradictory
    assert (facts.of(a) & facts.of_others({"enum": ["a", "b"]})).contradictory
    assert not (facts.of(a) & facts.of_others({"enum": ["a", "b"], "minLength": 2})).contradictory
    assert not (facts.of({"type": "number"}) & facts.of_others({"type": "integer"})).contradictory


def test_conditions_on_one_member_cost_their_number_not_its_exponential():
    kinds = [f"k{index}" for index in range(40)]
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": kinds}},
        "required": ["kind"],
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"v": {"const": kind}}}}
            for kind in kinds
        ],
    }
    grammar = lower(json.dumps(schema), GrammarOptions())
    assert matches(grammar, '{"kind":"k7","v":"k7"}')
    assert not matches(grammar, '{"kind":"k7","v":"k8"}')
    assert not matches(grammar, '{"kind":"k","v":"k"}')
