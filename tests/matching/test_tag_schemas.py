"""JSON Schemas inside structural tags: what is accepted is what jsonschema accepts, or the schema is refused."""

import json

import jsonschema
import pytest

from infernix_plugin.errors import ConstraintError, InvalidGrammar, UnsupportedSchema
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.matching.tag_schemas import with_own_schemas
from infernix_plugin.structured_output import structural_tag

CLOSE, END = 256, 257
ENFORCED = [
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
    {"type": "integer", "multipleOf": 7, "minimum": 5},
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


def test_the_place_is_that_of_the_tag_as_it_was_sent() -> None:
    tag = structural_tag.from_json(tag_of({"type": "json_schema", "json_schema": {"type": "string", "wrong": 1}}))
    framing = Framing(thinking=True, close_id=CLOSE)
    for used in (CONTENT, framing):
        with pytest.raises(UnsupportedSchema) as caught:
            with_own_schemas(tag.after(used).text, GrammarOptions())
        assert tag.place(caught.value.location, used) == "#/format/json_schema/wrong"


def test_notations_of_calls_stay_those_of_xgrammar() -> None:
    text = tag_of({"type": "json_schema", "json_schema": {"type": "object"}, "style": "glm_xml"})
    assert with_own_schemas(text, GrammarOptions()) == text


def test_excluded_texts_and_whitespace_of_a_schema(compiler) -> None:
    form = {"type": "json_schema", "json_schema": {"const": [1]}}
    with pytest.raises(UnsupportedSchema, match="excluded texts"):
        compiler.compile_structural_tag(tag_of(form | {"excludes": ["1"]}))
    assert accepts(compiler.compile_structural_tag(tag_of(form)), "[ 1]")
    tight = compiler.compile_structural_tag(tag_of(form | {"max_whitespace_cnt": 0}))
    assert accepts(tight, "[1]")
    assert not accepts(tight, "[ 1]")
