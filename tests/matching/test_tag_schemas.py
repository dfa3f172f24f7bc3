"""JSON Schemas inside structural tags: what is accepted is what jsonschema accepts, or the schema is refused."""

import json

import jsonschema
import pytest

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, InvalidGrammar, UnsupportedSchema
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.matching.tag_formats import MAX_NESTING
from infernix_plugin.structured_output import structural_tag

CLOSE, END = 256, 257
ENFORCED = [
    {"type": "integer", "multipleOf": 7, "minimum": 5},
    {"enum": [1, 2, 3], "not": {"enum": [1, 2]}},
    {"type": "string", "if": True, "then": {"const": "aa"}},
    {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
    {"type": "string", "enum": ["a", 1]},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 3},
    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    {"const": {"a": [True]}},
    True,
]
REFUSED = [
    {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    {"type": "string", "maxLenght": 2},
    {"type": "string", "format": "dat"},
]
VALUES = [
    1, 2, 3, 7, 14, 194686, True, None, "", "a", "b", "c", "aa", "bbb", "bbbb", [1], [1, 2], [1, 2, 1], {"a": 1},
    {"a": 1, "b": 2}, {"a": [True]},
]  # fmt: skip


@pytest.fixture(scope="module")
def compiler():
    pieces = [*(bytes([byte]) for byte in range(256)), b"</think>", b"<end>"]
    return ConstraintCompiler(TokenDomain(pieces, control={"</think>": CLOSE, "<end>": END}, stop=[END]))


def tag_of(form):
    return json.dumps({"type": "structural_tag", "format": form})


def accepts(compiled, text):
    return compiled.session().preview([*text.encode(), END]) == len(text) + 1


def placed(schema, inside):
    """A tag with the schema alone or inside of another format, and where it stands."""
    form = {"type": "json_schema", "json_schema": schema}
    if not inside:
        return tag_of(form), "#/format/json_schema"
    tags = [{"begin": "<f>", "content": form, "end": "</f>"}]
    return tag_of({"type": "triggered_tags", "triggers": ["<"], "tags": tags}), "#/format/tags/0/content/json_schema"


@pytest.mark.parametrize("schema", ENFORCED, ids=json.dumps)
@pytest.mark.parametrize("inside", [False, True])
def test_a_schema_in_a_tag_means_what_it_says(compiler, schema, inside) -> None:
    compiled = compiler.compile_structural_tag(placed(schema, inside)[0])
    for value in VALUES:
        text = json.dumps(value)
        valid = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert accepts(compiled, f"<f>{text}</f>" if inside else text) == valid, value


@pytest.mark.parametrize("schema", REFUSED, ids=json.dumps)
@pytest.mark.parametrize("inside", [False, True])
def test_what_a_tag_cannot_enforce_is_refused_with_its_place(compiler, schema, inside) -> None:
    text, place = placed(schema, inside)
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_structural_tag(text)
    assert caught.value.location is not None
    assert caught.value.location.startswith(place)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 5,
                "exclusiveMinimum": True, "maximum": 9,
            },
            "6", "5",
        ),
        ({"type": "array", "items": [{"const": 1}], "additionalItems": False, "minItems": 1}, "[1]", "[1, 1]"),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1}, "[1]", "[1, 2]"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_schemas_that_xgrammar_would_refuse(compiler, schema, right, wrong, inside) -> None:
    compiled = compiler.compile_structural_tag(placed(schema, inside)[0])
    around = "<f>{}</f>" if inside else "{}"
    assert accepts(compiled, around.format(right))
    assert not accepts(compiled, around.format(wrong))


@pytest.mark.parametrize("inside", [False, True])
def test_a_wrong_schema_has_the_place_of_its_keyword(compiler, inside) -> None:
    text, place = placed({"type": "objct"}, inside)
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_structural_tag(text)
    assert caught.value.location == f"{place}/type"
    assert "object" in str(caught.value)


def test_tokens_by_name(compiler) -> None:
    form = {"type": "sequence", "elements": [{"type": "any_tokens", "exclude_tokens": ["</think>"]}]}
    form["elements"].append({"type": "token", "token": "</think>"})
    session = compiler.compile_structural_tag(tag_of(form)).session()
    assert session.preview([97, 98, CLOSE, END]) == 4
    with pytest.raises(InvalidGrammar, match='"<no>" not found'):
        compiler.compile_structural_tag(tag_of({"type": "token", "token": "<no>"}))


@pytest.mark.parametrize(
    ("form", "place", "said"),
    [
        ({"type": "const_string", "vale": "a", "value": "b"}, "#/format", "value"),
        ({"type": "any_text", "exclude": ["x"]}, "#/format", "excludes"),
        (
            {"type": "optional", "content": {"type": "regex", "pattern": "a", "flags": "i"}},
            "#/format/content",
            "pattern",
        ),
        (
            {"type": "tags_with_separator", "separator": ",", "tags": [{"begin": "<", "ends": ">"}]},
            "#/format/tags/0",
            "end",
        ),
    ],
)
def test_a_member_that_a_format_does_not_have_is_refused(compiler, form, place, said) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        compiler.compile_structural_tag(tag_of(form))
    assert caught.value.location == place
    assert said in (caught.value.hint or "")


def test_the_place_is_that_of_the_tag_as_it_was_sent(compiler) -> None:
    tag = structural_tag.from_json(tag_of({"type": "json_schema", "json_schema": {"type": "string", "wrong": 1}}))
    for used in (CONTENT, Framing(thinking=True, close_id=CLOSE)):
        with pytest.raises(UnsupportedSchema) as caught:
            compiler.compile_structural_tag(tag.after(used).text)
        assert tag.place(caught.value.location, used) == "#/format/json_schema/wrong"


def test_the_place_in_the_older_form() -> None:
    structure = {"begin": "<f>", "schema": {"wrong": 1}, "end": "</f>"}
    tag = structural_tag.from_json(json.dumps({"structures": [structure], "triggers": ["<f>"]}))
    assert tag.place("#/format/tags/0/content/json_schema/wrong", CONTENT) == "#/structures/0/schema/wrong"
    thinking = Framing(thinking=True, close_id=CLOSE)
    assert tag.place("#/format/elements/3/tags/0/begin", thinking) == "#/structures/0/begin"
    assert tag.place("#/format/elements/3", thinking) == "#"


def test_excluded_texts_order_and_whitespace_of_a_schema(compiler) -> None:
    form = {"type": "json_schema", "json_schema": {"const": [1]}}
    for member in ({"excludes": ["1"]}, {"any_order": True}):
        with pytest.raises(UnsupportedSchema) as caught:
            compiler.compile_structural_tag(tag_of(form | member))
        assert caught.value.location == f"#/format/{next(iter(member))}"
    assert accepts(compiler.compile_structural_tag(tag_of(form)), "[ 1]")
    tight = compiler.compile_structural_tag(tag_of(form | {"max_whitespace_cnt": 1}))
    assert accepts(tight, "[ 1]")
    assert not accepts(tight, "[  1]")


def test_a_schema_beside_what_only_xgrammar_reads_means_what_it_says(compiler) -> None:
    """A tag that the grammar tree cannot say: its schemas are written out for xgrammar."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2], "not": {"const": 2}}}}
    elements = [{"type": "token", "token": CLOSE}, {"type": "json_schema", "json_schema": schema}]
    form = {"type": "sequence", "elements": elements}
    compiled = compiler.compile_structural_tag(tag_of(form))
    assert compiled.engine == "xgrammar"
    for value in VALUES:
        valid = jsonschema.Draft202012Validator(schema).is_valid(value)
        text = json.dumps(value).encode()
        assert (compiled.session().preview([CLOSE, *text, END]) == len(text) + 2) == valid, value
    elements[1]["json_schema"] = {"type": "array", "uniqueItems": True}
    with pytest.raises(UnsupportedSchema) as caught:
        compiler.compile_structural_tag(tag_of(form))
    assert caught.value.location == "#/format/elements/1/json_schema"


ARGUMENT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def argument(schema):
    return {"type": "object", "properties": {"a": schema}}


NOTED = {
    "enforced": (ARGUMENT, None),
    "closed": ({**ARGUMENT, "additionalProperties": False, "title": "t"}, None),
    "any": (True, None),
    "listed": (argument({"type": "string", "enum": ["x"]}), None),
    "union": (argument({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]}), None),
    "referred": ({**argument({"$ref": "#/$defs/a"}), "$defs": {"a": {"type": "null"}}}, None),
    "not": ({**ARGUMENT, "not": {}}, "/not"),
    "below": ({"type": "object", "properties": {"a/b": {"if": {}}}}, "/properties/a~1b/if"),
    "unknown": ({**ARGUMENT, "requird": ["a"]}, "/requird"),
    "required": ({**ARGUMENT, "required": ["b"]}, "/required"),
    "twice": ({**ARGUMENT, "additionalProperties": True}, "/additionalProperties"),
    "two types": (argument({"enum": [1, "x"], "type": "string"}), "/properties/a/type"),
    "both": (argument({"const": "xx", "maxLength": 1}), "/properties/a/maxLength"),
    "beside": ({"anyOf": [ARGUMENT], "minProperties": 1}, "/minProperties"),
    "several": ({"allOf": [ARGUMENT, {"maxProperties": 1}]}, "/allOf"),
    "one": (argument({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "/properties/a/oneOf"),
    "no type": (argument({"minimum": 1}), "/properties/a/minimum"),
    "pattern": (argument({"type": "string", "pattern": "a$b"}), "/properties/a/pattern"),
    "format": (argument({"type": "string", "format": "x"}), "/properties/a/format"),
    "list": (argument({"type": "array", "items": [{}]}), "/properties/a/items"),
    "malformed": ({"type": "object", "required": 3}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.parametrize("style", ["qwen_xml", "glm_xml"])
def test_a_notation_of_calls_enforces_a_schema_or_refuses_it(compiler, style, name) -> None:
    schema, place = NOTED[name]
    text = tag_of({"type": "json_schema", "json_schema": schema, "style": style})
    if place is None:
        assert compiler.compile_structural_tag(text).engine == "xgrammar"
        return
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_structural_tag(text)
    assert caught.value.location == f"#/format/json_schema{place}"


@pytest.mark.parametrize(
    ("pattern", "loose"),
    [("a$b", True), ("a^b", True), ("^a$", False), (r"a\$b", False), ("[$]b", False), ("^a$|^b$", False)],
)
def test_anchors_that_xgrammar_passes_over_are_refused(compiler, pattern, loose) -> None:
    text = tag_of({"type": "regex", "pattern": pattern})
    if not loose:
        compiler.compile_structural_tag(text)
        return
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_structural_tag(text)
    assert caught.value.location == "#/format/pattern"


def test_formats_are_nested_as_deeply_as_in_xgrammar(compiler) -> None:
    def nested(depth):
        form = {"type": "const_string", "value": "a"}
        for _ in range(depth - 1):
            form = {"type": "optional", "content": form}
        return tag_of(form)

    assert accepts(compiler.compile_structural_tag(nested(MAX_NESTING)), "a")
    with pytest.raises(ConstraintTooLarge, match="101 levels"):
        compiler.compile_structural_tag(nested(MAX_NESTING + 1))
