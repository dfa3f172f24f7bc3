"""Schemas by example: which texts their grammars derive, and which schemas are refused where."""

import json
from itertools import pairwise

import pytest

from infernix_plugin.errors import (
    ConstraintError,
    ConstraintTooLarge,
    InvalidSchema,
    UnsatisfiableConstraint,
    UnsupportedSchema,
)
from infernix_plugin.grammar.analysis import undefined
from infernix_plugin.grammar.ir import And, CharSet, Lexeme, Not, Ref, Repeat, children, walk
from infernix_plugin.grammar.json_schema import json_object, lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles import ir_oracle
from tests.oracles.ir_matcher import matches

OPTIONS = GrammarOptions()
NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
}
DISCRIMINATED = [
    {"properties": {"k": {"const": kind}, kind: {"type": "integer"}}, "required": ["k", kind]} for kind in ("a", "b")
]


def source(schema):
    return schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)


def refused(schema, options=OPTIONS):
    with pytest.raises(ConstraintError) as caught:
        lower(source(schema), options)
    return caught.value


ACCEPTED = [
    # schema, texts in the language, texts outside it
    (True, ["1", '{"a":[null,true]}', '"x"', "[]", "-0.5e3"], ["", " 1", "1 ", "nul", "{,}", "[1,]", "01"]),
    ({}, ["1", "{}", "9" * 18], ["1" * 60, "tru"]),
    ({"type": ["string", "null"]}, ['"a"', "null"], ["1", "true"]),
    ({"type": "number"}, ["1", "1.5", "1e5"], ['"1"']),
    ({"type": ["integer", "number"]}, ["1", "1.5"], []),
    # objects
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        ['{"a":1}', '{ "a" : 1 }', '{\n  "a": 1,\n  "b": []\n}', "{" + " " * 32 + '"a":1}', '{"a":1,"b":1,"c":2}'],
        [
            "{" + " " * 33 + '"a":1}',
            "{}",
            '{"b":1,"a":1}',
            '{"a":1,"a":2}',
            '{"a":1,"\\u0061":"x"}',
            '{"a":1,}',
            '{"a":"1"}',
        ],
    ),
    (
        {
            "properties": {"reasoning": {"type": "string"}, "label": {"type": "string"}},
            "required": ["reasoning", "label"],
        },
        ['{"reasoning":"r","label":"l"}', "1", "[]"],
        ['{"label":"l","reasoning":"r"}', '{"reasoning":"r"}'],
    ),
    (
        {
            "type": "object",
            "properties": {key: {"type": "null"} for key in "abcde"},
            "required": ["c"],
            "additionalProperties": False,
        },
        ['{"c":null}', '{"a":null,"c":null}', '{"b":null,"c":null,"e":null}', '{"a":null,"b":null,"c":null,"d":null}'],
        [
            "{}",
            '{"a":null}',
            '{"c":null,"b":null}',
            '{"c":null,"f":null}',
            '{"c":null,}',
            '{,"c":null}',
            '{"a":null"c":null}',
        ],
    ),
    (
        {
            "type": "object",
            "properties": {key: {"type": "null"} for key in "abc"},
            "additionalProperties": {"type": "integer"},
        },
        ["{}", '{"b":null}', '{"a":null,"c":null,"x":1}', '{"x":1,"y":2}'],
        ['{"x":null}', '{"x":1,"a":null}', '{"a":1}', '{,"x":1}'],
    ),
    ({"type": "object", "additionalProperties": False}, ["{}", "{ }"], ['{"a":1}']),
    ({"type": "object", "required": ["z"]}, ['{"z":1}', '{"z":1,"a":2}'], ["{}", '{"a":1}', '{"a":2,"z":1}']),
    (
        {"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": {"type": "integer"}},
        ['{"b":1}', '{"a":[],"b":1,"c":2}'],
        ['{"b":[]}', '{"a":1}'],
    ),
    (
        {"type": "object", "properties": {"a": False, "b": {}}},
        ["{}", '{"b":1}', '{"c":1}'],
        ['{"a":1}', '{"b":1,"a":1}'],
    ),
    (
        {"type": "object", "properties": {'q"\\\n/é\u0001': {}}, "additionalProperties": False},
        ['{"q\\"\\\\\\n/é\\u0001":1}'],
        ['{"q":1}'],
    ),
    # strings
    ({"type": "string"}, ['"\\n"', '"😀/"', '"\\u001f"', '"\x7f"'], ['"\n"', '"\\/"', '"\\u0041"', '"\\x"', '"', '"a']),
    ({"type": "string", "maxLength": 1}, ['""', '"\\n"', '"😀"', '"\\u0000"'], ['"ab"', '"\\n\\n"']),
    ({"type": "string", "minLength": 2, "maxLength": 3.0}, ['"ab"', '"a\\"b"'], ['"a"', '"abcd"']),
    (
        {"type": "object", "properties": {"s": {"type": "string", "maxLength": 2147483647}}},
        ['{"s":"abc"}'],
        ['{"s":1}'],
    ),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ['"abc"', '"a"'], ['"abcd"', '""', '"A"']),
    ({"type": "string", "pattern": "^a$|^b$"}, ['"a"', '"b"'], ['"ab"', '"c"', '""']),
    ({"type": "string", "pattern": '^a|"|\\n'}, ['"axx"', '"x\\"y"', '"\\n"'], ['"xa"', '"\\t"']),
    ({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]}, ['"ab"', '"xbxa"'], ['"a"', '"b"']),
    ({"pattern": "^(?!a).*(?<!b)$", "maxLength": 3}, ['"ba"', '"\\""', '""', "1"], ['"ab"', '"ccb"', '"cccc"']),
    ({"pattern": "^.$"}, ['"é"', "1"], ['"ab"', '"\\n"']),
    # numbers
    ({"type": "integer", "minimum": -5}, ["-5", "-3", "0", "7"], ["-6", "1.0"]),
    ({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 3}, ["2"], ["1", "3"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.1", "3"], ["0", "-1"]),
    ({"type": "number", "minimum": 1, "maximum": 5}, ["5", "1.5"], ["5.7", "0"]),
    ({"minimum": 3}, ["3", '"a"', "{}"], ["2"]),
    ({"not": {"type": ["integer", "string"]}}, ["null", "[]", "0.5", "-1.25"], ['"a"', "1", "1.0"]),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}, ["4"], ["3"]),
    # arrays
    ({"type": "array", "items": {"type": "string"}, "maxItems": 0}, ["[]", "[ ]"], ['["a"]']),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
        ["[1,2]", "[1, 2, 3]"],
        ["[1]", "[1,2,3,4]"],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}},
        ["[]", "[1]", '[1,"a"]', '[1,"a",null,null]'],
        ['["a"]', "[1,2]", '[1,"a",1]', "[1,null]"],
    ),
    ({"prefixItems": [{"type": "integer"}], "minItems": 1, "items": False}, ["[1]", "7"], ["[]", "[1,2]"]),
    ({"type": "array", "items": [{"type": "string"}]}, ["[]", '["a"]', '["a",1]'], ["[1]"]),
    ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, ['["a"]'], ['["a",1]']),
    (
        {"type": "array", "items": {"enum": ["a", 1, 1.0, None]}, "uniqueItems": True, "minItems": 2, "maxItems": 3},
        ['["a",1]', '[null,1.0,"a"]'],
        ['["a"]', '["a","a"]', "[1,1.0]", '["a",1,null,null]', "[]"],
    ),
    (
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
        ["[]", "[true]", "[false,true]"],
        ["[true,true]"],
    ),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[7]"], ["[1,2]"]),
    ({"type": "array", "uniqueItems": False}, ["[7,7]"], []),
    ({"type": "array", "uniqueItems": True}, ['[7,"7",{"a":[7,7]},{}]'], ["[7,7.0]", '[{"a":1,"b":2},{"b":2,"a":1}]']),
    (
        {"properties": {"a": {"items": {"type": "integer"}, "uniqueItems": True}}},
        ['{"a":[1,2],"b":[1,1]}', '{"a":7}', "[1,1]"],
        ['{"a":[1,1]}'],
    ),
    (
        {"anyOf": [{"type": "array", "uniqueItems": True}, {"type": "array"}, {"type": "null"}]},
        ["[1,1]", "[1,2]", "null"],
        [],
    ),
    (
        {"type": "array", "uniqueItems": True, "items": {"enum": [*"abcdefghi"]}, "minItems": 8},
        ['["a","b","c","d","e","f","g","i"]'],
        ['["a","b","c","d","e","f","g"]', '["a","b","c","d","e","f","g","a"]'],
    ),
    (
        {"properties": {"a": {"type": "array", "uniqueItems": True, "items": {"enum": [*range(9)]}, "minItems": 10}}},
        ["{}", '{"b":[]}'],
        ['{"a":[]}', '{"a":[0,1,2,3,4,5,6,7,8]}', '{"a":[0,1,2,3,4,5,6,7,8,8]}'],
    ),
    ({"enum": [[1, 1], [1, 2], [{"a": 1}, {"a": 1.0}]], "uniqueItems": True}, ["[1,2]"], ["[1,1]"]),
    ({"type": "array", "items": [], "additionalItems": {"type": "null"}}, ["[null]"], ["[1]"]),
    ({"type": "array", "prefixItems": [{}, False, {}]}, ["[]", "[1]"], ["[1,1]", "[1,1,1]"]),
    ({"type": "array", "additionalItems": False}, ["[1]"], ["1"]),
    (
        {"type": "array", "prefixItems": [{"type": "null"}] * 3, "minItems": 5, "maxItems": 6},
        ["[null,null,null,1,2]"],
        ["[null,null,null,1]", "[null,null,null,1,2,3,4]"],
    ),
    # finite values
    ({"enum": ["在线", "离线"]}, ['"在线"'], ['"在"', '"\\u5728\\u7ebf"']),
    ({"type": "string", "enum": ["a", 1]}, ['"a"'], ["1"]),
    (
        {"enum": [1, 1.0, 10, True, None, "x"], "type": ["integer", "null"], "maximum": 5},
        ["1", "1.0", "null"],
        ["10", "true", '"x"'],
    ),
    (
        {"const": {"b": [1, {}], "a": "\u0007/"}},
        ['{"b":[1,{}],"a":"\\u0007/"}', '{ "b": [1, { }], "a": "\\u0007/" }'],
        ['{"a":"\\u0007/","b":[1,{}]}'],
    ),
    ({"const": 1e2}, ["100.0"], ["1e2", "100"]),
    ('{"const": 1e2}', ["1e2"], ["100"]),
    (
        {"enum": [{"a": 1}, {"a": "x"}, {}], "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        ['{"a":1}'],
        ['{"a":"x"}', "{}"],
    ),
    ({"enum": [[1], [1, 2], ["a"]], "items": {"type": "integer"}, "maxItems": 1}, ["[1]"], ["[1,2]", '["a"]']),
    ({"enum": [1, 2, 3], "anyOf": [{"const": 1}, {"minimum": 3}]}, ["1", "3"], ["2"]),
    ({"enum": ["ab", "b"], "pattern": "^a"}, ['"ab"'], ['"b"']),
    (
        {
            "enum": [{"a": {"a": {}}}, {"a": 1}],
            "properties": {"a": {"$ref": "#/$defs/o"}},
            "$defs": {"o": {"type": "object"}},
        },
        ['{"a":{"a":{}}}'],
        ['{"a":1}'],
    ),
    # references
    (
        {"$ref": "#/$defs/N", "$defs": {"N": NODE | {"required": ["v"]}}},
        ['{"v":1}', '{"v":1,"c":[{"v":2,"c":[]}]}'],
        ['{"v":1,"c":[{}]}', "{}"],
    ),
    (
        {"properties": {"c": {"$ref": "#"}}, "additionalProperties": False},
        ["{}", '{"c":{"c":{}}}', '{"c":1}'],
        ['{"c":{"d":1}}'],
    ),
    ({"$ref": "#/definitions/a%20b~1c", "definitions": {"a b/c": {"type": "null"}}}, ["null"], ["1"]),
    ({"$ref": "#/$defs/S", "maxLength": 1, "$defs": {"S": {"type": "string"}}}, ['"a"'], ['"ab"', "1"]),
    (
        {"$id": "https://example.test/s.json", "$ref": "s.json#/$defs/S", "$defs": {"S": {"type": "null"}}},
        ["null"],
        ["1"],
    ),
    ({"$ref": "#n", "$defs": {"a": {"$anchor": "n", "type": "null"}}}, ["null"], ["1"]),
    ({"$ref": "#/$defs/A/$defs/B", "$defs": {"A": {"$id": "x", "$defs": {"B": {"const": 1}}}}}, ["1"], ["2"]),
    ({"properties": {"a": {"$id": "https://example.test/x", "type": "null"}}}, ['{"a":null}'], ['{"a":1}']),
    ({"allOf": [{"$ref": "#/$defs/a"}] * 3, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"const": 0}}}, ["0"], ["1"]),
    # composition
    (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "additionalProperties": False,
            "anyOf": [{"required": ["a"]}],
        },
        ['{"a":1}'],
        ['{"zz":1}', "{}"],
    ),
    (
        {
            "allOf": [
                {"$ref": "#/$defs/B"},
                {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"]},
            ],
            "$defs": {
                "B": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 10}}, "required": ["x"]}
            },
        },
        ['{"x":12,"y":"q"}'],
        ['{"x":1}', '{"x":12}', '{"x":1,"y":"q"}'],
    ),
    (
        {
            "allOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}}],
            "type": "object",
        },
        ["{}", '{"a":1}'],
        ['{"b":1}'],
    ),
    (
        {"allOf": [{"prefixItems": [{"type": "number"}]}, {"items": {"type": "integer"}}], "type": "array"},
        ["[1,2]"],
        ["[1.5]"],
    ),
    ({"anyOf": [{"type": "string"}, {"minimum": 2}], "maxLength": 1}, ['"a"', "2", "{}"], ['"ab"', "1"]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}, {"const": None}]}, ["1", '"a"', "null"], ["true", "1.5"]),
    ({"oneOf": [{"type": "integer", "maximum": 0}, {"type": "integer", "exclusiveMinimum": 0}]}, ["0", "1"], []),
    ({"type": "object", "oneOf": DISCRIMINATED}, ['{"k":"a","a":1}', '{"k":"b","b":1}'], ['{"k":"a","b":1}', "{}"]),
    ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, ['"a"'], ['"c"']),
    # annotations
    (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "urn:x",
            "title": 1,
            "description": "d",
            "default": {"type": 7},
            "examples": [],
            "$comment": "c",
            "readOnly": True,
            "writeOnly": False,
            "deprecated": True,
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": "a/b",
            "contentSchema": {"type": 3},
            "x-order": 1,
        },
        ['"a"'],
        ["1"],
    ),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), ACCEPTED)
def test_language(schema, inside, outside):
    grammar = lower(source(schema), OPTIONS)
    assert undefined(grammar) == {}
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


@pytest.mark.parametrize("text", ["{}", '{"a":[1,"x"],"b":{"c":null}}', "{ }", '{\n "a": -1.5e+3\n}'])
def test_json_object_holds_objects(text):
    grammar = json_object(OPTIONS)
    assert matches(grammar, text)
    assert ir_oracle.matches(grammar, text)


@pytest.mark.parametrize("text", ["", "[]", "1", '{"a"}', '{"a":1,}', " {}", "{} ", "{" + " " * 33 + "}", '{"a":"\t"}'])
def test_json_object_holds_nothing_else(text):
    assert not matches(json_object(OPTIONS), text)


REFUSED = [
    # schema, error, location
    ("{", InvalidSchema, "1:2"),
    ('{"type":\n "string",}', InvalidSchema, "2:11"),
    ('{"maximum": NaN}', InvalidSchema, "1:13"),
    ('{"maximum":\n -Infinity}', InvalidSchema, "2:2"),
    ('{"properties": {"a": {"type": "null", "type": "string"}}}', InvalidSchema, "#/properties/a/type"),
    ("3", InvalidSchema, "#"),
    ({"properties": {"a": 1}}, InvalidSchema, "#/properties/a"),
    ({"type": "strng"}, InvalidSchema, "#/type"),
    ({"type": []}, InvalidSchema, "#/type"),
    ({"items": {"minLength": -1}}, InvalidSchema, "#/items/minLength"),
    ({"minItems": "1"}, InvalidSchema, "#/minItems"),
    ({"properties": {"a": {"required": True}}}, InvalidSchema, "#/properties/a/required"),
    ({"anyOf": []}, InvalidSchema, "#/anyOf"),
    ({"$ref": "#/$defs/x"}, InvalidSchema, "#/$ref"),
    ({"type": "string", "foo": 1}, UnsupportedSchema, "#/foo"),
    ({"properties": {"a": {"multipleOf": 11}}}, UnsupportedSchema, "#/properties/a"),
    ({"multipleOf": 0}, InvalidSchema, "#/multipleOf"),
    ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6}, UnsatisfiableConstraint, "#"),
    (
        {"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}, {"not": {"multipleOf": 12}}]},
        UnsatisfiableConstraint,
        "#",
    ),
    ({"uniqueItems": True, "contains": {"type": "integer"}, "type": "array"}, UnsupportedSchema, "#/contains"),
    (
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 9},
            "uniqueItems": True,
            "minItems": 10,
        },
        UnsatisfiableConstraint,
        "#",
    ),
    (
        {"properties": {"a": {"type": "array", "prefixItems": [{}, {"const": 1}], "uniqueItems": True, "minItems": 2}}},
        UnsupportedSchema,
        "#/properties/a",
    ),
    (
        {"anyOf": [{"type": "array", "uniqueItems": True}, {"type": "array", "items": {"type": "null"}}]},
        UnsupportedSchema,
        "#",
    ),
    ({"anyOf": [{"type": "array", "uniqueItems": True}, {"enum": [[1, 1]]}]}, UnsupportedSchema, "#"),
    ({"not": {"const": {"a": 1}}}, UnsupportedSchema, "#/not"),
    ({"type": "array", "not": {"uniqueItems": True}}, UnsupportedSchema, "#/not"),
    ({"not": {"$ref": "#"}}, UnsatisfiableConstraint, "#/not"),
    ({"properties": {"a~b/c": {"format": "regex"}}}, UnsupportedSchema, "#/properties/a~0b~1c/format"),
    ({"anyOf": [{}, {"if": 1}]}, InvalidSchema, "#/anyOf/1/if"),
    ({"properties": {"o": {"minProperties": 2}}}, UnsupportedSchema, "#/properties/o"),
    ({"patternProperties": {"(a)\\1": {}}}, UnsupportedSchema, "#/patternProperties/(a)\\1"),
    ({"dependentRequired": {"a": "b"}}, InvalidSchema, "#/dependentRequired/a"),
    ({"type": "object", "minProperties": 2, "maxProperties": 1}, UnsatisfiableConstraint, "#"),
    ({"type": "object", "required": ["A"], "propertyNames": {"pattern": "^a"}}, UnsatisfiableConstraint, "#"),
    ({"type": "object", "minProperties": 1, "propertyNames": {"type": "number"}}, UnsatisfiableConstraint, "#"),
    ({"items": {"oneOf": [{"const": [1]}, {"type": "array"}]}}, UnsupportedSchema, "#/items/oneOf"),
    (
        {"properties": {"a": {"oneOf": [{"minimum": 1}, {"maximum": 5}]}, "b": {"pattern": "("}}},
        UnsupportedSchema,
        "#/properties/b/pattern",
    ),
    ({"not": {}}, UnsatisfiableConstraint, "#"),
    ({"oneOf": [{"type": "null"}, {"type": "null"}]}, UnsatisfiableConstraint, "#"),
    ({"$ref": "https://example.test/x"}, UnsupportedSchema, "#/$ref"),
    ({"$ref": "#name"}, UnsupportedSchema, "#/$ref"),
    ({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}, "$ref": "#n"}, UnsupportedSchema, "#/$ref"),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a",
            "maxLength": 1,
            "definitions": {"a": {}},
        },
        UnsupportedSchema,
        "#/maxLength",
    ),
    ({"$schema": "https://example.test/schema"}, UnsupportedSchema, "#/$schema"),
    ({"pattern": "(a)\\1"}, UnsupportedSchema, "#/pattern"),
    ({"pattern": "["}, UnsupportedSchema, "#/pattern"),
    ({"const": 9223372036854775808}, UnsupportedSchema, "#/const"),
    ('{"enum": [1, 0.10000000000000000001]}', UnsupportedSchema, "#/enum/1"),
    ('{"minimum": 1e999999999}', UnsupportedSchema, "#/minimum"),
    ({"properties": {"\ud800": {}}}, UnsupportedSchema, "#/properties/\\ud800"),
    ({"type": "integer", "minimum": 2**64}, UnsupportedSchema, "#"),
    (False, UnsatisfiableConstraint, "#"),
    ({"enum": []}, UnsatisfiableConstraint, "#"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, UnsatisfiableConstraint, "#"),
    ({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3}, UnsatisfiableConstraint, "#"),
    ({"type": "string", "minLength": 2, "maxLength": 1}, UnsatisfiableConstraint, "#"),
    ({"type": "string", "pattern": "^aaa$", "maxLength": 2}, UnsatisfiableConstraint, "#"),
    ({"type": "string", "const": 1}, UnsatisfiableConstraint, "#"),
    (
        {"type": "object", "properties": {"a": {"type": "string", "const": 1}}, "required": ["a"]},
        UnsatisfiableConstraint,
        "#/properties/a",
    ),
    (
        {"type": "object", "required": ["b"], "additionalProperties": False},
        UnsatisfiableConstraint,
        "#/additionalProperties",
    ),
    ({"type": "array", "prefixItems": [{}, False], "minItems": 2}, UnsatisfiableConstraint, "#/prefixItems/1"),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, UnsatisfiableConstraint, "#/$defs/A"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, UnsatisfiableConstraint, "#/anyOf/0"),
    (
        {"type": "object", "properties": {"c": {"$ref": "#"}}, "required": ["c"]},
        UnsatisfiableConstraint,
        "#/properties/c",
    ),
    ("[" * 10_000, ConstraintTooLarge, "1:257"),
    ({"type": "string", "minLength": 2**40}, ConstraintTooLarge, "#"),
]


@pytest.mark.parametrize(("schema", "error", "location"), REFUSED)
def test_refusals_say_where(schema, error, location):
    found = refused(schema)
    assert (type(found), found.location) == (error, location), found


def test_unknown_keywords_come_with_a_suggestion():
    assert "maxLength" in refused({"maxLenght": 3}).hint
    assert "integer" in refused({"type": "intger"}).hint
    ignoring = GrammarOptions(unknown_keywords="ignore")
    assert matches(lower('{"type": "null", "maxLenght": 3}', ignoring), "null")
    assert refused({"extends": {}}, ignoring).location == "#/extends"
    assert matches(lower('{"type": "null", "_maxLength": 3, "x-y": 1}', OPTIONS), "null")


def test_what_stands_next_to_a_reference_in_older_drafts():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        "properties": {"p": {"$ref": "#/definitions/a", "maxLength": 1, "description": "d"}},
    }
    assert refused(schema).location == "#/properties/p/maxLength"
    grammar = lower(json.dumps(schema), GrammarOptions(unknown_keywords="ignore"))
    assert matches(grammar, '{"p":"abc"}')
    assert not matches(grammar, '{"p":1}')


@pytest.mark.parametrize(
    "schema", ['{"const":1e400}', '{"minimum":-1e999}', '{"enum":[0,1e400]}', '{"multipleOf":1e400}']
)
def test_numbers_beyond_binary64_are_refused(schema):
    with pytest.raises(ConstraintError):
        lower(schema, OPTIONS)


@pytest.mark.parametrize(
    ("schema", "says"), [('{"type":5}', "'5'"), ('{"type":null}', "null"), ('{"$schema":[]}', "an array")]
)
def test_messages_show_json_values_as_json(schema, says):
    with pytest.raises(ConstraintError, match=says):
        lower(schema, OPTIONS)


@pytest.mark.timeout(120)
def test_hostile_documents_cost_little():
    deep = '{"type":"array","items":' * 10_000 + "{}" + "}" * 10_000
    assert isinstance(refused(deep), ConstraintTooLarge)
    chain = {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(5000)} | {"d5000": {"type": "null"}}
    assert matches(lower(json.dumps({"$ref": "#/$defs/d0", "$defs": chain}), OPTIONS), "null")
    wide = {"allOf": [{"anyOf": [{"required": [f"{group}-{one}"]} for one in range(40)]} for group in range(8)]}
    assert isinstance(refused(wide), ConstraintTooLarge)
    assert isinstance(refused({"description": "x" * (1 << 20)}), ConstraintTooLarge)
    contradicting = [{"pattern": f"^(a|b)*{letter}(a|b){{17}}$"} for letter in "ab"]
    assert isinstance(refused({"type": "string", "allOf": contradicting}), ConstraintTooLarge)


def test_deep_but_legal_schemas_lower_without_recursion():
    nested = {"type": "null"}
    value = None
    for _ in range(120):
        nested = {"properties": {"a": nested}, "required": ["a"], "type": "object"}
    for _ in range(240):
        value = [value]
    lower(json.dumps(nested), OPTIONS)
    lower(json.dumps({"const": value, "$ref": "#/$defs/l", "$defs": {"l": {"items": {"$ref": "#/$defs/l"}}}}), OPTIONS)
    lower(json.dumps({"type": "array", "prefixItems": [{"const": index} for index in range(2000)]}), OPTIONS)


def test_optional_members_without_a_finite_value_are_not_offered():
    schema = {"properties": {"c": {"$ref": "#/$defs/N"}, "d": {}}, "type": "object", "additionalProperties": False}
    schema["$defs"] = {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}}
    grammar = lower(source(schema), OPTIONS)
    assert '"c"' not in str(grammar.rules)
    assert matches(grammar, '{"d":1}')


def test_whitespace_limit_is_an_option():
    compact = lower('{"type":"array"}', GrammarOptions(max_whitespace=0))
    assert matches(compact, "[1,2]")
    assert not matches(compact, "[1, 2]")


@pytest.mark.parametrize(("schema", "_inside", "_outside"), ACCEPTED)
def test_characters_stand_inside_lexemes_and_whitespace_runs_stand_apart(schema, _inside, _outside):
    grammar = lower(source(schema), OPTIONS)
    for body in grammar.rules.values():
        pending = [body]
        while pending:
            node = pending.pop()
            if isinstance(node, Lexeme):
                assert not any(isinstance(part, Ref) for part in walk(node))
                continue
            assert not isinstance(node, CharSet | And | Not)
            items = children(node)
            assert (Ref("space"), Ref("space")) not in pairwise(items)
            if isinstance(node, Repeat) and node.maximum != 1:
                assert Ref("space") not in (children(node.item)[:1] and children(node.item)[-1:])
            pending.extend(items)
