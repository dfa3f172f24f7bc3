"""Random schemas against the ``jsonschema`` validator, in both directions."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar.json_schema import json_object, lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.json_schema.test_lower import ACCEPTED, source
from tests.oracles.ir_matcher import matches
from tests.oracles.ir_sampler import NotSampledError, Sampler
from tests.oracles.unique_items import keeps_items_apart

OPTIONS = GrammarOptions(max_whitespace=3)
NAMES = ["a", "b", 'c"']
values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -3, 2.5, 12, "", "a", "ab", "é\n", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "x"]), inner, max_size=3),
    max_leaves=5,
)
bounds = st.sampled_from([-3, 0, 1, 1.5, 2, 12])
sizes = st.integers(0, 3)
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def keywords(inner):
    several = st.lists(inner, min_size=1, max_size=2)
    return {
        "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
        "enum": st.lists(values, min_size=1, max_size=4),
        "const": values,
        "minimum": bounds,
        "maximum": bounds,
        "exclusiveMinimum": bounds,
        "exclusiveMaximum": bounds,
        "minLength": sizes,
        "maxLength": sizes,
        "pattern": st.sampled_from(["a", "^a", "b$", "^[ab]*$", "^$|c"]),
        "items": inner,
        "prefixItems": several,
        "minItems": sizes,
        "maxItems": sizes,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "minContains": sizes,
        "maxContains": sizes,
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        "required": st.lists(st.sampled_from([*NAMES, "x"]), max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b$", "^[^a]*$"]), inner, min_size=1, max_size=2),
        "propertyNames": inner,
        "minProperties": sizes,
        "maxProperties": sizes,
        "dependentRequired": st.dictionaries(
            st.sampled_from(NAMES), st.lists(st.sampled_from([*NAMES, "x"]), max_size=2, unique=True), max_size=2
        ),
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
        "$ref": st.sampled_from(["#", "#/$defs/d", "#/$defs/e"]),
        "anyOf": several,
        "allOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }


@st.composite
def objects(draw, inner):
    table = keywords(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(table)), max_size=4, unique=True))
    schema = {keyword: draw(table[keyword]) for keyword in chosen}
    if "then" not in schema and "else" not in schema:
        schema.pop("if", None)  # asserts nothing, but the validator follows references in it for ever
    return schema


nested = st.recursive(st.booleans() | objects(st.booleans()), objects, max_leaves=6)


@st.composite
def schemas(draw):
    return draw(objects(nested)) | {"$defs": {"d": draw(nested), "e": draw(nested)}}


def lowered(schema):
    try:
        return lower(json.dumps(schema), OPTIONS)
    except (UnsupportedSchema, UnsatisfiableConstraint, ConstraintTooLarge):
        return None


def valid(schema, instance):
    try:
        return Draft202012Validator(schema).is_valid(instance)
    except RecursionError:  # a reference cycle that the validator follows for ever
        return False


def sample(grammar, seed, count):
    sampler = Sampler(grammar, random.Random(seed))
    for _ in range(count):
        try:
            text = sampler.draw()
        except NotSampledError:
            return
        if keeps_items_apart(grammar, text):
            yield text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas(), seed=st.integers(0, 10))
def test_every_sampled_text_is_valid_json_that_satisfies_the_schema(schema, seed):
    grammar = lowered(schema)
    if grammar is not None:
        for text in sample(grammar, seed, 5):
            assert Draft202012Validator(schema).is_valid(json.loads(text)), text


def in_order(schema, value):
    """The value with its members as the grammar orders them, for schemas that name members only at the top."""
    if not isinstance(value, dict):
        return value
    names = [*schema.get("properties", {}), *schema.get("required", [])]
    rank = {name: index for index, name in reversed(list(enumerate(names)))}
    return dict(sorted(value.items(), key=lambda member: rank.get(member[0], len(names))))


flat = st.recursive(st.booleans() | objects(st.booleans()), objects, max_leaves=2)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    schema=objects(flat).map(lambda made: made | {"$defs": {"d": {"type": "string"}, "e": {"type": "array"}}}),
    instances=st.lists(values, min_size=5, max_size=5),
)
def test_instances_match_exactly_when_they_are_valid(schema, instances):
    """Invalid instances never match; valid ones do, unless an order or a spelling is asked for that they lack."""
    grammar = None
    try:
        grammar = lower(json.dumps(schema), OPTIONS)
    except UnsatisfiableConstraint:
        pass
    except ConstraintError:
        return
    fixed = any(
        word in json.dumps(schema) for word in ('"enum"', '"const"', '"$ref"', '"dependent', '"not"', '"if"', "Of")
    )
    ordered = json.dumps(schema).count('"properties"') + json.dumps(schema).count('"required"') <= (
        ("properties" in schema) + ("required" in schema)
    )
    for instance in instances:
        instance = in_order(schema, instance)
        expected = valid(schema, instance)
        for text in (
            json.dumps(instance, ensure_ascii=False, separators=(",", ":")),
            json.dumps(instance, ensure_ascii=False),
        ):
            found = grammar is not None and matches(grammar, text)
            if found or (ordered and not fixed):
                assert found == expected, (text, expected)


@pytest.mark.parametrize("schema", [schema for schema, _, _ in ACCEPTED])
def test_hand_written_schemas_generate_only_valid_values(schema):
    decoded = json.loads(source(schema))
    if isinstance(decoded, dict) and isinstance(decoded.get("items"), list):
        return  # the validator follows 2020-12, where items is never an array
    if isinstance(decoded, dict) and decoded.get("exclusiveMinimum") is True:
        return
    grammar = lower(source(schema), OPTIONS)
    for text in sample(grammar, 7, 40):
        assert Draft202012Validator(decoded).is_valid(json.loads(text)), text


def test_sampled_objects_are_objects():
    for text in sample(json_object(OPTIONS), 3, 200):
        assert isinstance(json.loads(text), dict)
