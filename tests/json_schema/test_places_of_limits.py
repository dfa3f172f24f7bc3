"""What is refused for its size says where, and what is refused for leading nowhere only where it is used."""

import json

import pytest

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint
from infernix_plugin.framing.tools.strict import strict_arguments
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import matches

OPTIONS = GrammarOptions()
LONG = {"type": "string", "pattern": "(ab|cd)*e.*f", "minLength": 5000, "maxLength": 100_000}
MANY_NAMES = {"patternProperties": {f"x{index}": {"minimum": index} for index in range(16)}}


@pytest.mark.parametrize("part", [LONG, MANY_NAMES], ids=["string", "names"])
def test_a_limit_is_passed_at_a_place(part):
    with pytest.raises(ConstraintTooLarge) as refused:
        lower(json.dumps({"properties": {"a": {"items": part}}}), OPTIONS)
    assert refused.value.location == "#/properties/a/items"


def test_a_limit_is_passed_by_an_argument():
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": LONG}, "additionalProperties": False}
    with pytest.raises(ConstraintTooLarge) as refused:
        strict_arguments(json.dumps(parameters), OPTIONS)
    assert refused.value.location == "#/properties/b"


def test_a_limit_is_passed_by_telling_options_apart():
    with pytest.raises(ConstraintTooLarge) as refused:
        lower(json.dumps({"items": {"oneOf": [LONG, {"type": "string", "pattern": "^(a|b)*a"}]}}), OPTIONS)
    assert refused.value.location == "#/items/oneOf"


CIRCULAR = {"$ref": "#/$defs/a"}


def test_a_reference_to_itself_is_no_fault_where_nothing_uses_it():
    grammar = lower(json.dumps({"$defs": {"a": CIRCULAR}, "type": "boolean"}), OPTIONS)
    assert matches(grammar, "true")


@pytest.mark.parametrize("schema", [{"properties": {"b": CIRCULAR}}, {"items": {"anyOf": [CIRCULAR, {}]}}])
def test_a_reference_to_itself_is_refused_at_its_place(schema):
    with pytest.raises(UnsatisfiableConstraint) as refused:
        lower(json.dumps({"$defs": {"a": CIRCULAR}, **schema}), OPTIONS)
    assert refused.value.location == "#/$defs/a"


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("value", [str, int, lambda index: [index]], ids=["strings", "numbers", "arrays"])
def test_thousands_of_constants(keyword, value):
    grammar = lower(json.dumps({keyword: [{"const": value(index)} for index in range(3000)]}), OPTIONS)
    assert matches(grammar, json.dumps(value(2999)))
    assert not matches(grammar, json.dumps(value(3000)))


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        ({"oneOf": [{"const": "a"}, {"const": "b"}, {"const": "a"}]}, ['"b"'], ['"a"', '"c"']),
        ({"oneOf": [{"enum": ["a", 1]}, {"enum": ["b", 1]}, {"enum": ["b", "c"]}]}, ['"a"', '"c"'], ["1", '"b"']),
        ({"oneOf": [{"const": "a"}, {"type": "string", "maxLength": 1}, {"const": 2}]}, ['"b"', "2"], ['"a"', '"bc"']),
        ({"oneOf": [{"type": "string", "maxLength": 1}, {"const": "a"}, {"const": "bc"}]}, ['"b"', '"bc"'], ['"a"']),
        ({"anyOf": [{"const": "a"}, {"enum": ["b", "cc", 3]}], "maxLength": 1}, ['"a"', '"b"', "3"], ['"cc"', "4"]),
    ],
)
def test_lists_beside_each_other(schema, allowed, refused):
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [text for text in allowed if not matches(grammar, text)] == []
    assert [text for text in refused if matches(grammar, text)] == []
