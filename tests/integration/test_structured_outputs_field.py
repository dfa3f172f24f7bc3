"""What ``structured_outputs`` and response formats may hold: anything else is one short sentence with its place."""

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest
from vllm.entrypoints.generate.base import protocol
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin.entrypoints.response_formats import TYPES as TYPES_OF
from infernix_plugin.entrypoints.structured_outputs import check_field, check_messages_fields
from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.seams import anthropic_messages
from infernix_plugin.seams.structured_outputs_field import BATCH, CHAT, COMPLETION, RESPONSES, TAG

KINDS = "It holds one of json, regex, choice, grammar, json_object or structural_tag."
WRONG = {
    "unknown": ({"jsn": {}}, "structured_outputs.jsn", "has no key 'jsn'", "Did you mean json?"),
    "unlike any": ({"zzz": 1}, "structured_outputs.zzz", "has no key 'zzz'", KINDS),
    "unknown option": (
        {"regex": "a", "whitespace_patern": "b"},
        "structured_outputs.whitespace_patern",
        "has no key 'whitespace_patern'",
        "Did you mean whitespace_pattern?",
    ),
    "none": ({}, "structured_outputs", "holds no constraint", KINDS),
    "only options": ({"disable_any_whitespace": True}, "structured_outputs", "holds no constraint", KINDS),
    "two": ({"json": {}, "regex": "a"}, "structured_outputs.regex", "one constraint, but json and regex are set", ""),
    "number": (
        {"json": 5},
        "structured_outputs.json",
        "type int",
        "json is a JSON Schema, as an object or as its text.",
    ),
    "regex": ({"regex": ["a"]}, "structured_outputs.regex", "type list", "regex is a string."),
    "choice": ({"choice": "a"}, "structured_outputs.choice", "type str", "choice is a list of strings."),
    "one choice": ({"choice": ["a", 1]}, "structured_outputs.choice[1]", "type int", "choice is a list of strings."),
    "option": (
        {"regex": "a", "disable_any_whitespace": "maybe"},
        "structured_outputs.disable_any_whitespace",
        "type str",
        "disable_any_whitespace is true or false.",
    ),
    "a word for a boolean": (
        {"json_object": "yes"},
        "structured_outputs.json_object",
        "type str",
        "json_object is true.",
    ),
    "a number for a boolean": (
        {"json_object": 0},
        "structured_outputs.json_object",
        "type int",
        "json_object is true.",
    ),
    "a word for an option": (
        {"regex": "a", "disable_any_whitespace": "no"},
        "structured_outputs.disable_any_whitespace",
        "type str",
        "disable_any_whitespace is true or false.",
    ),
    "no object": ([1], "structured_outputs", "must be an object", KINDS),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name):
    given, place, said, hint = WRONG[name]
    with pytest.raises(VLLMValidationError) as refused:
        check_field({"model": "m", "structured_outputs": given})
    text = str(refused.value)
    assert refused.value.parameter == place
    assert said in text
    assert text.partition("Hint: ")[2] == hint
    assert len(text) < 250


@pytest.mark.parametrize(
    "given",
    [
        None, {"json": {"type": "object"}}, {"json": "{}"}, {"json_object": True}, {"choice": ["a"], "regex": None},
        {"regex": "a", "whitespace_pattern": " "}, StructuredOutputsParams(regex="a"),
    ],
)  # fmt: skip
def test_what_is_right_stays_as_it_is(given):
    body = {"structured_outputs": given}
    assert check_field(body) is body


TYPES = "Its types are text, json_object, json_schema, structural_tag."
SCHEMA = "schema is a JSON Schema, as an object."
NAMED = 'It is {"name": "...", "schema": {...}}.'


def named(**more):
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, **more}}


FORMATS = {
    "slip": ({"type": "json_shema"}, "response_format.type", "has no type 'json_shema'", "Did you mean json_schema?"),
    "unlike any": ({"type": "grammar"}, "response_format.type", "has no type 'grammar'", TYPES),
    "no text": ({"type": 3}, "response_format.type", "cannot be of the type int", TYPES),
    "no type": ({}, "response_format", "response_format has no type", TYPES),
    "no object": ("json_object", "response_format", "cannot be of the type str", TYPES),
    "no schema": ({"type": "json_schema"}, "response_format.json_schema", "json_schema is missing", NAMED),
    "schema as text": (named(schema="{}"), "response_format.json_schema.schema", "cannot be of the type str", SCHEMA),
    "text for both": (
        {"type": "json_schema", "json_schema": "{}"}, "response_format.json_schema", "cannot be of the type str", NAMED
    ),
    "no name": (
        named(name=None), "response_format.json_schema.name", "name is missing", "name is a string of your choice."
    ),
    "strict": (
        named(strict="maybe"), "response_format.json_schema.strict", "of the type str", "strict is true or false."
    ),
    "beside": (
        {"type": "json_object", "json_schema": {"schema": {}}}, "response_format.json_schema.name", "is missing",
        "name is a string of your choice.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_wrong_response_format(name):
    given, place, said, hint = FORMATS[name]
    with pytest.raises(VLLMValidationError) as refused:
        check_field({"response_format": given})
    text = str(refused.value)
    assert refused.value.parameter == place
    assert said in text
    assert text.partition("Hint: ")[2] == hint
    assert len(text) < 250


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"type": "json_shema"}, "text.format.type", "Hint: Did you mean json_schema?"),
        ({"type": "structural_tag"}, "text.format.type", "Hint: Its types are text, json_object, json_schema."),
        ({"type": "json_schema", "schema": {}}, "text.format.name", "text.format.name is missing"),
        ({"type": "json_schema", "name": "n"}, "text.format.schema", "text.format.schema is missing"),
        ({"type": "json_schema", "name": "n", "schema": 5}, "text.format.schema", "of the type int"),
    ],
)
def test_a_wrong_format_of_responses(given, place, said):
    with pytest.raises(VLLMValidationError) as refused:
        check_field({"text": {"format": given}})
    assert refused.value.parameter == place
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"type": "json_shema", "schema": {}}, "output_config.format.type", "Hint: Its type is json_schema."),
        ("json", "output_config.format", "of the type str"),
        ({"type": "json_schema", "schema": 3}, "output_config.format.schema", "of the type int"),
    ],
)
def test_a_wrong_format_of_messages(given, place, said):
    protocol = importlib.import_module(anthropic_messages.REQUEST.module)
    request = anthropic_messages.REQUEST.replace(inspect.unwrap(protocol.AnthropicMessagesRequest))
    body = {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": "q"}]}
    with pytest.raises(VLLMValidationError) as refused:
        request.model_validate({**body, "output_config": {"format": given}})
    assert refused.value.parameter == place
    assert said in str(refused.value).replace("Did you mean json_schema?", "Its type is json_schema.")
    for right in (None, {"type": "json_schema", "schema": {}}, {"schema": {}}, {"type": "json_schema"}):
        request.model_validate({**body, "output_config": {"format": right}})
        check_messages_fields({"output_config": {"format": right}})


@pytest.mark.parametrize(
    "given",
    [
        None, {"type": "text"}, {"type": "json_object"}, named(), named(strict=None, description="d"),
        named(schema=None),
        {"type": "structural_tag", "format": {"type": "any_text"}},
        {"type": "structural_tag", "structures": [{"begin": "a", "schema": {}, "end": "b"}], "triggers": ["a"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_right_response_format_stays_as_it_is(given):
    body = {"response_format": given, "text": None}
    assert check_field(body) is body
    check_field({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}})
    check_field({"text": {"format": {"type": "text"}, "verbosity": "low"}})


def judged(tag, field, refuse=True):
    """Judge a tag as vLLM's function does; it refuses all of them."""

    def validate_structural_tag_payload(payload, *, parameter):
        if refuse:
            raise VLLMValidationError("Invalid.", parameter=parameter)

    TAG.replace(validate_structural_tag_payload)(tag, parameter=field)


@pytest.mark.parametrize(
    ("field", "prefix"),
    [("structured_outputs", "structured_outputs.structural_tag: "), ("response_format", "response_format: ")],
)
def test_a_structural_tag_that_vllm_refuses_is_explained(field, prefix):
    tag = json.dumps({"type": "structural_tag", "format": {"type": "regx"}})
    with pytest.raises(VLLMValidationError) as refused:
        judged(tag, field)
    assert refused.value.parameter == "#/format/type"
    assert str(refused.value) == (
        f"{prefix}There is no format of the type 'regx'. (at #/format/type) Hint: Did you mean regex?"
    )
    judged(tag, field, refuse=False)


def test_a_structural_tag_that_only_vllm_refuses_keeps_its_error():
    with pytest.raises(VLLMValidationError, match=r"Invalid\."):
        judged(json.dumps({"type": "structural_tag", "format": {"type": "any_text"}}), "structured_outputs")
    with pytest.raises(VLLMValidationError, match=r"Invalid\."):
        judged(5, "structured_outputs")


def by_vllm(tag, field):
    """Judge a tag with vLLM's own function behind the seam."""
    TAG.replace(protocol.validate_structural_tag_payload)(tag, parameter=field)


FOUR = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 5, "exclusiveMinimum": True}


@pytest.mark.parametrize("field", ["structured_outputs", "response_format"])
@pytest.mark.parametrize(
    "form",
    [
        {"type": "token", "token": "</think>"},
        {"type": "any_tokens", "exclude_tokens": ["</think>"]},
        {"type": "json_schema", "json_schema": FOUR},
        {"type": "json_schema", "json_schema": {"type": "array", "items": [{"const": 1}], "additionalItems": False}},
        {"type": "json_schema", "json_schema": {"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1}},
        {"type": "json_schema", "json_schema": {"type": "objct"}},
    ],
    ids=json.dumps,
)
def test_vllm_does_not_judge_schemas_and_names_of_tokens(form, field):
    by_vllm(json.dumps({"type": "structural_tag", "format": form}), field)


def test_vllm_judges_the_rest():
    with pytest.raises(VLLMValidationError, match="not closed") as refused:
        by_vllm(json.dumps({"type": "structural_tag", "format": {"type": "regex", "pattern": "("}}), "x")
    assert refused.value.parameter == "#/format/pattern"
    nested = '{"a":' * 5000 + "1" + "}" * 5000
    with pytest.raises(VLLMValidationError, match="nested too deeply"):
        by_vllm(nested, "x")


def test_the_outer_form_of_a_tag_as_a_response_format():
    with pytest.raises(VLLMValidationError) as refused:
        check_field({"response_format": {"type": "structural_tag", "structures": [{"end": "b"}], "triggers": ["a"]}})
    assert refused.value.parameter == "#/structures/0"
    assert isinstance(refused.value.__cause__, InvalidGrammar)


@pytest.mark.parametrize("seam", [CHAT, COMPLETION, RESPONSES, BATCH], ids=lambda seam: seam.attribute)
def test_every_request_reads_it(seam, monkeypatch):
    holder = getattr(importlib.import_module(seam.module), seam.attribute.partition(".")[0])
    method = seam.attribute.partition(".")[2]
    before = holder.__pydantic_decorators__.model_validators[method].func
    monkeypatch.setattr(holder, method, seam.replace(before))
    chat = [{"role": "user", "content": "q"}]
    needed = [{"messages": chat}, {"prompt": "q"}, {"input": "q"}, {"messages": [chat]}]
    body = {"model": "m", **needed[[CHAT, COMPLETION, RESPONSES, BATCH].index(seam)]}
    form = {"text": {"format": {"type": "x"}}} if seam is RESPONSES else {"response_format": {"type": "x"}}
    try:
        with pytest.raises(VLLMValidationError, match="has no key 'jsn'"):
            holder.model_validate({**body, "structured_outputs": {"jsn": {}}})
        with pytest.raises(VLLMValidationError, match="has no type 'x'"):
            holder.model_validate({**body, **form})
        assert holder.model_validate({**body, "structured_outputs": {"regex": "a"}}).structured_outputs.regex == "a"
    finally:
        holder.__pydantic_decorators__.model_validators[method].func = before
        holder.model_rebuild(force=True)


def test_the_readme_names_the_types_of_response_formats():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    said = readme[readme.index("`response_format`, in") :].partition("A whole program")[0]
    chat, responses, messages = said.split(";")
    for part, types in ((chat, TYPES_OF["response_format"]), (messages, TYPES_OF["output_config.format"])):
        assert [name for name in re.findall(r"`(\w+)`", part) if name != "response_format"] == list(types)
    assert TYPES_OF["text.format"] == TYPES_OF["response_format"][:3]
    assert "`text.format` of Responses the first\nthree" in responses
