"""References inside one document: resources with an identity of their own, anchors, dynamic scopes."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import ConstraintError, InvalidSchema, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar.json_schema import lower, uri
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import matches

OPTIONS = GrammarOptions()
DRAFT = {
    4: "http://json-schema.org/draft-04/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}


@pytest.mark.parametrize(
    ("reference", "target"),
    # RFC 3986, 5.4: the base is http://a/b/c/d;p?q
    [
        ("g:h", "g:h"),
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x", "http://a/b/c/g;x"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("http:g", "http:g"),
    ],
)
def test_references_resolve_as_the_standard_says(reference, target):
    assert uri.resolve("http://a/b/c/d;p?q", reference) == (target, None)
    assert uri.resolve("http://a/b/c/d;p?q", reference + "#s/../x") == (target, "s/../x")


@pytest.mark.parametrize(
    ("base", "reference", "target"),
    [
        ("urn:uuid:1", "urn:uuid:2", "urn:uuid:2"),
        ("urn:uuid:1", "", "urn:uuid:1"),
        ("any+scheme:/a/b", "c", "any+scheme:/a/c"),
        ("HTTP://a/b", "c", "http://a/c"),
        ("x:a/b", "../c", "x:/c"),
        ("x://host", "c", "x://host/c"),
    ],
)
def test_references_resolve_under_any_scheme(base, reference, target):
    assert uri.resolve(base, reference) == (target, None)


def nested(inner, draft=2020, **outer):
    return {"$schema": DRAFT[draft], "$defs": {"inner": inner}, **outer}


INTEGER, STRING = ["1"], ['"a"']
LANGUAGES = [
    # a nested resource: pointers are its own, also from outside
    (nested({"$id": "i", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, **{"$ref": "i"}), INTEGER, STRING),
    (nested({"$id": "i", "$defs": {"a": {"type": "integer"}}}, **{"$ref": "i#/$defs/a"}), INTEGER, STRING),
    (
        nested({"$id": "i", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, **{"$ref": "#/$defs/inner"}),
        INTEGER,
        STRING,
    ),
    # a reference inside is relative to it
    (
        nested(
            {"$id": "https://b.test/x/y", "$ref": "../z", "$defs": {"z": {"$id": "/z", "type": "integer"}}},
            **{"$id": "https://a.test/", "$ref": "https://b.test/x/y"},
        ),
        INTEGER,
        STRING,
    ),
    # the empty fragment names the whole resource, an anchor is looked up in its own resource
    (nested({"$id": "i", "type": "integer"}, **{"$ref": "i#"}), INTEGER, STRING),
    (
        nested(
            {"$id": "i", "$ref": "#n", "$defs": {"a": {"$anchor": "n", "type": "integer"}}},
            **{"$ref": "i", "properties": {"a": {"$anchor": "n", "type": "string"}}},
        ),
        INTEGER,
        STRING,
    ),
    # draft-07 names anchors by $id, and a $ref switches off an $id beside it
    (nested({"$id": "#n", "type": "integer"}, draft=7, **{"$ref": "#n"}), INTEGER, STRING),
    (
        nested(
            {"$id": "dir/one", "type": "string"},
            draft=7,
            allOf=[{"$id": "dir/", "$ref": "one"}],
            definitions={"one": {"$id": "one", "type": "integer"}},
        ),
        INTEGER,
        STRING,
    ),
    # draft-04 spells it id
    (
        nested({"id": "i", "items": {"$ref": "#"}, "type": "array"}, draft=4, allOf=[{"$ref": "i"}]),
        ["[]", "[[]]"],
        ["[1]"],
    ),
    # without a dialect id may be an identity or not; only one of the two leads somewhere
    ({"allOf": [{"id": "i", "$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}}, INTEGER, STRING),
    ({"allOf": [{"id": "i", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}]}, INTEGER, STRING),
    # a nested resource may be written in another dialect
    (
        nested({"$id": "i", "$schema": DRAFT[7], "items": [{"type": "integer"}]}, **{"$ref": "i"}),
        ["[1]", '[1,"a"]'],
        ['["a"]'],
    ),
    # what an unknown or free keyword holds is no schema
    ({"const": {"$id": "i"}, "anyOf": [{"$ref": "i"}], "$defs": {"a": {"$id": "i"}}}, ['{"$id":"i"}'], ["1"]),
    ({"$ref": "#/x-private/a", "x-private": {"a": {"type": "integer"}}}, INTEGER, STRING),
    # identities that are repeated do no harm unless they are referred to
    (
        {"$id": "i", "properties": {"a": {"$id": "i"}}, "$ref": "#/$defs/b", "$defs": {"b": {"const": 1}}},
        INTEGER,
        STRING,
    ),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), LANGUAGES)
def test_language(schema, inside, outside):
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


REFUSED = [
    (nested({"$id": "i", "$ref": "#/$defs/outer"}, **{"$ref": "i"}), InvalidSchema, "#/$defs/inner/$ref"),
    ({"$ref": "i", "properties": {"a": {"$id": "i"}, "b": {"$id": "i"}}}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "../i", "$defs": {"a": {"$id": "i"}}}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "i#n", "$defs": {"a": {"$id": "i"}, "b": {"$anchor": "n"}}}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "#/x-a/b", "x-a": {"$id": "i", "b": {"$ref": "#"}}}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "#/x-a", "x-a": {"properties": {"a": {"$anchor": "n"}}}}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "i", "enum": [{"$id": "i"}]}, UnsupportedSchema, "#/$ref"),
    (
        {"properties": {"a": {"id": "i", "$ref": "#/$defs/b", "$defs": {"b": {}}}}, "$defs": {"b": {}}},
        UnsupportedSchema,
        "#/properties/a/$ref",
    ),
    ({"properties": {"a": {"id": "i", "$ref": "#/b"}}}, InvalidSchema, "#/properties/a/$ref"),
    ({"properties": {"a": {"$schema": DRAFT[7]}}}, UnsupportedSchema, "#/properties/a/$schema"),
    ({"properties": {"a": {"$id": "i", "$schema": "x:y"}}}, UnsupportedSchema, "#/properties/a/$schema"),
    ({"$schema": DRAFT[7], "properties": {"a": {"$dynamicRef": "#"}}}, UnsupportedSchema, "#/properties/a/$dynamicRef"),
    ({"properties": {"a": {"$recursiveRef": "#"}}}, UnsupportedSchema, "#/properties/a/$recursiveRef"),
    ({"$schema": DRAFT[2019], "items": {"$recursiveRef": "#/a"}}, InvalidSchema, "#/items/$recursiveRef"),
]


@pytest.mark.parametrize(("schema", "error", "location"), REFUSED)
def test_refusals_say_where(schema, error, location):
    with pytest.raises(ConstraintError) as caught:
        lower(json.dumps(schema), OPTIONS)
    assert (type(caught.value), caught.value.location) == (error, location), caught.value


def test_dynamic_scopes_are_told_apart_at_one_place():
    generic = {
        "$id": "generic",
        "type": "object",
        "properties": {"v": {"$dynamicRef": "#item"}, "next": {"$ref": "#"}},
        "required": ["v"],
        "additionalProperties": False,
        "$defs": {"any": {"$dynamicAnchor": "item"}},
    }
    lists = [
        {"$id": kind, "$ref": "generic", "$defs": {"own": {"$dynamicAnchor": "item", "type": kind}}}
        for kind in ("integer", "string")
    ]
    schema = nested(generic, prefixItems=[{"$ref": "integer"}, {"$ref": "string"}, {"$ref": "generic"}], items=False)
    schema["$defs"] |= dict(enumerate(lists))
    grammar = lower(json.dumps(schema), OPTIONS)
    for text in ('[{"v":1},{"v":"a"},{"v":null}]', '[{"v":1,"next":{"v":2}},{"v":"a","next":{"v":"b"}}]'):
        assert matches(grammar, text)
    for text in (
        '[{"v":"a"}]',
        '[{"v":1},{"v":1}]',
        '[{"v":1,"next":{"v":"a"}}]',
        '[{"v":1},{"v":"a","next":{"v":1}}]',
    ):
        assert not matches(grammar, text)


KINDS = ["null", "boolean", "integer", "string"]


@st.composite
def dynamic_documents(draw):
    """Resources that refer to each other, most with the same dynamic anchor at the root or below."""
    names = ["r0", "r1", "r2", "r3"]
    resources = {}
    for index, name in enumerate(names):
        schema = {"$id": name}
        if draw(st.booleans()):
            schema["$defs"] = {"own": {"$dynamicAnchor": "n", "type": draw(st.sampled_from(KINDS))}}
        elif draw(st.booleans()):
            schema["$dynamicAnchor"] = "n"
        # in place only to later ones, so that nothing leads back to itself
        if index < 3 and draw(st.booleans()):
            schema["$ref"] = draw(st.sampled_from(names[index + 1 :]))
        if draw(st.booleans()):
            goal = draw(st.sampled_from(names))
            schema["properties"] = {"a": draw(st.sampled_from([{"$ref": goal}, {"$dynamicRef": f"{goal}#n"}]))}
        resources[name] = schema
    named = {name for name, schema in resources.items() if "$dynamicAnchor" in json.dumps(schema)}
    for schema in resources.values():
        inner = schema.get("properties", {}).get("a", {})
        if inner.get("$dynamicRef", "#").partition("#")[0] not in {"", *named}:
            del schema["properties"]
    return {"$schema": DRAFT[2020], "$id": "https://example.test/root", "$ref": "r0", "$defs": resources}


VALUES = st.recursive(
    st.sampled_from([None, True, 1, "s"]), lambda inner: st.fixed_dictionaries({"a": inner}), max_leaves=4
)


@settings(max_examples=150, deadline=None)
@given(dynamic_documents(), st.lists(VALUES, min_size=1, max_size=8))
def test_dynamic_references_mean_what_an_independent_validator_says(schema, values):
    validator = jsonschema.Draft202012Validator(schema)
    try:
        grammar = lower(json.dumps(schema), OPTIONS)
    except UnsatisfiableConstraint:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert matches(grammar, json.dumps(value)) == validator.is_valid(value), value


def test_recursive_references_mean_the_outermost_resource_with_the_anchor():
    tree = {"$id": "tree", "type": "object", "properties": {"child": {"$recursiveRef": "#"}}}
    strict = {
        "$schema": DRAFT[2019],
        "$id": "https://example.test/strict",
        "$ref": "tree",
        "required": ["name"],
        "$defs": {"tree": tree},
    }
    for inner, outer in [(True, True), (True, False), (False, True), (False, False)]:
        tree["$recursiveAnchor"], strict["$recursiveAnchor"] = inner, outer
        grammar = lower(json.dumps(strict), OPTIONS)
        validator = jsonschema.Draft201909Validator(strict)
        for value in ({"name": 1}, {"child": {}, "name": 1}, {"child": {"name": 1}, "name": 1}, {"child": {"name": 1}}):
            assert matches(grammar, json.dumps(value)) == validator.is_valid(value), (inner, outer, value)
        assert matches(grammar, '{"child":{},"name":1}') == (not (inner and outer))
