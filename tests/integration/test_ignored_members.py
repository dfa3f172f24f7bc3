"""Constraints that would be ignored one level inside a field are refused; other unknown members stay."""

import copy
from typing import get_type_hints

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError

from infernix_plugin.entrypoints.structured_outputs import check_field, check_messages_fields
from infernix_plugin.entrypoints.validation import refuse_conflicts
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
BESIDE_SCHEMA = sorted(ASSERTIONS.keys() - {"type", "id", "$id"})
TYPED = {"type": "json_schema", "name": "p", "schema": SCHEMA}
NAMED = {"name": "p", "schema": SCHEMA}


def refused(check, body):
    with pytest.raises(VLLMValidationError) as error:
        check(body)
    return error.value.parameter, str(error.value).partition("Hint: ")[2]


@pytest.mark.parametrize(("field", "check"), [("text", check_field), ("output_config", check_messages_fields)])
@pytest.mark.parametrize(
    ("member", "value", "hint"),
    [
        ("fromat", TYPED, "Did you mean format?"),
        ("Format", TYPED, "Did you mean format?"),
        ("formats", TYPED, "Did you mean format?"),
        ("response_format", TYPED, "Its name here is format."),
        ("output_format", TYPED, "Its name here is format."),
        ("structured_outputs", {"json": SCHEMA}, "It is a field of the request itself."),
        ("guided_json", SCHEMA, "It is a field of the request itself."),
        ("schema", SCHEMA, "It belongs inside format."),
        ("schema", {}, "It belongs inside format."),
        ("json_schema", NAMED, "It belongs inside format."),
        ("type", "json_schema", "It belongs inside format."),
    ],
)
def test_a_response_format_beside_its_place(field, check, member, value, hint):
    assert refused(check, {field: {member: value}}) == (f"{field}.{member}", hint)
    for right in ({member: None}, {"type": "text", "verbosity": "low", "form": 1, "information": 2}):
        check({field: right})


def test_slips_of_an_effort():
    assert refused(check_field, {"reasoning": {"efort": "low"}}) == ("reasoning.efort", "Did you mean effort?")
    found = refused(check_messages_fields, {"output_config": {"efort": "low"}})
    assert found == ("output_config.efort", "Did you mean effort?")


@pytest.mark.parametrize("keyword", BESIDE_SCHEMA)
@pytest.mark.parametrize("value", [False, {}, ["a"]])
def test_keywords_beside_a_schema(keyword, value):
    beside = {keyword: value}
    named = {"type": "json_schema", "json_schema": {**NAMED, **beside}}
    found = refused(check_field, {"response_format": named})
    assert found == (f"response_format.json_schema.{keyword}", "It belongs inside schema.")
    outside = {"type": "json_schema", "json_schema": NAMED, **beside}
    found = refused(check_field, {"response_format": outside})
    assert found == (f"response_format.{keyword}", "It belongs inside json_schema.schema.")
    found = refused(check_field, {"text": {"format": {**TYPED, **beside}}})
    assert found == (f"text.format.{keyword}", "It belongs inside schema.")
    found = refused(check_messages_fields, {"output_config": {"format": {**TYPED, **beside}}})
    assert found == (f"output_config.format.{keyword}", "It belongs inside schema.")
    check_field({"response_format": {"type": "json_schema", "json_schema": {**NAMED, keyword: None}}})


@pytest.mark.parametrize(("member", "meant"), [("strct", "strict"), ("Strict", "strict"), ("shcema", "schema")])
def test_slips_beside_a_schema(member, meant):
    named = {"type": "json_schema", "json_schema": {**NAMED, member: True}}
    found = refused(check_field, {"response_format": named})
    assert found == (f"response_format.json_schema.{member}", f"Did you mean {meant}?")
    found = refused(check_field, {"text": {"format": {**TYPED, member: True}}})
    assert found == (f"text.format.{member}", f"Did you mean {meant}?")


def test_what_formats_have_passes():
    """Every member that vLLM, OpenAI or Anthropic know, and what asserts nothing."""
    from anthropic.types.beta import BetaJSONOutputFormatParam, BetaOutputConfigParam
    from openai.types.responses import ResponseFormatTextJSONSchemaConfigParam, ResponseTextConfigParam
    from openai.types.shared_params import Reasoning, ResponseFormatJSONSchema
    from openai.types.shared_params.response_format_json_schema import JSONSchema
    from vllm.entrypoints.generate.base.protocol import JsonSchemaResponseFormat

    annotations = {"title": "x", "$schema": "x", "$defs": {}, "examples": [1], "type": "json_schema", "any": 1}
    known = {*get_type_hints(JSONSchema), *JsonSchemaResponseFormat.model_fields} - {"name", "schema", "json_schema"}
    named = {"type": "json_schema", "json_schema": {**annotations, **dict.fromkeys(known), **NAMED}}
    named = dict.fromkeys(get_type_hints(ResponseFormatJSONSchema)) | named
    texts = dict.fromkeys(get_type_hints(ResponseFormatTextJSONSchemaConfigParam)) | annotations | TYPED
    body = {
        "response_format": named,
        "text": dict.fromkeys(get_type_hints(ResponseTextConfigParam), "low") | {"format": texts},
        "reasoning": dict.fromkeys(get_type_hints(Reasoning), "auto"),
    }
    assert check_field(body) is body
    form = dict.fromkeys(get_type_hints(BetaJSONOutputFormatParam)) | annotations | TYPED
    body = {"output_config": dict.fromkeys(get_type_hints(BetaOutputConfigParam), "low") | {"format": form}}
    before = copy.deepcopy(body)
    assert check_messages_fields(body) is body
    assert body == before


def chat(*functions):
    tools = [{"type": "function", "function": {"name": "f", **members}} for members in functions]
    messages = [{"role": "user", "content": "q"}]
    refuse_conflicts(ChatCompletionRequest.model_validate({"model": "m", "messages": messages, "tools": tools}))


def responses(*tools):
    tools = [{"type": "function", "name": "f", "parameters": {}, **tool} for tool in tools]
    refuse_conflicts(ResponsesRequest.model_validate({"model": "m", "input": "q", "tools": tools}))


def messages(*tools):
    check_messages_fields({"tools": [{"name": "f", "input_schema": {}, **tool} for tool in tools]})


TOOLS = {
    "chat": (chat, ".function", "parameters"),
    "responses": (responses, "", "parameters"),
    "messages": (messages, "", "input_schema"),
}
SCHEMAS = ("parameters", "input_schema", "inputSchema", "schema", "json_schema")


def refused_tool(api, *tools):
    ask, inside, _ = TOOLS[api]
    with pytest.raises(VLLMValidationError) as error:
        ask({}, *tools)
    place = error.value.parameter
    assert place.startswith(f"tools[1]{inside}.")
    return place.removeprefix(f"tools[1]{inside}."), str(error.value).partition("Hint: ")[2]


@pytest.mark.parametrize("api", TOOLS)
def test_a_schema_under_the_name_of_another_api(api):
    ask, _, here = TOOLS[api]
    for name in SCHEMAS:
        if name != here:
            given = {"strict": True, name: SCHEMA}
            hint = f"Its name here is {here}."
            if (api, name) == ("messages", "inputSchema"):
                hint = "Did you mean input_schema?"
            assert refused_tool(api, given) == (name, hint)
            ask({name: None})
    ask({here: SCHEMA, "strict": True})


@pytest.mark.parametrize("api", TOOLS)
def test_strict_inside_a_schema(api):
    ask, _, here = TOOLS[api]
    inside = {here: {**SCHEMA, "strict": True}}
    for given in (inside, {**inside, "strict": False}):
        assert refused_tool(api, given) == (f"{here}.strict", f"It belongs beside {here}.")
    ask({here: {"type": "object", "properties": {"strict": True}}}, {**inside, "strict": True})


@pytest.mark.parametrize("name", ["fromat", "formats", "grammar", "definition", "syntax", "regex", "lark"])
def test_the_grammar_of_a_custom_tool_beside_its_format(name):
    grammar = {"type": "grammar", "syntax": "regex", "definition": "a"}
    hint = "Did you mean format?" if name.startswith("f") else "It belongs inside format."
    assert refused_tool("responses", {"type": "custom", name: grammar}) == (name, hint)
    responses({"type": "custom", "format": {"type": "text"}}, {"type": "custom", name: None})


def test_functions_in_a_namespace():
    inner = {"type": "function", "name": "g", "strict": True}
    space = {"type": "namespace", "description": "d", "tools": [inner, {**inner, "input_schema": SCHEMA}]}
    found = refused_tool("responses", space)
    assert found == ("tools[1].input_schema", "Its name here is parameters.")
    responses({**space, "tools": [{**inner, "parameters": SCHEMA}]})


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_beside_its_function(name):
    tool = {"type": "function", "function": {"name": "f"}, name: SCHEMA}
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": [tool]}
    found = refused(lambda body: refuse_conflicts(ChatCompletionRequest.model_validate(body)), body)
    assert found == (f"tools[0].{name}", "It belongs inside function.")


def test_what_tools_have_passes():
    from anthropic.types.beta import BetaToolParam
    from openai.types.responses import CustomToolParam, FunctionToolParam
    from openai.types.shared_params import FunctionDefinition

    chat(dict.fromkeys(get_type_hints(FunctionDefinition)) | {"name": "f", "cache_control": {}, "output_schema": {}})
    unknown = {"any": 1, "cache_control": {"type": "ephemeral"}, "title": "x", "input": 1, "examples": []}
    extra = {"output_schema": SCHEMA, "defer_loading": False, "allowed_callers": ["direct"]}
    assert extra.keys() <= get_type_hints(FunctionToolParam).keys()
    responses({**extra, **unknown}, {"type": "custom", "description": "d", **unknown})
    assert {"format", "description"} <= get_type_hints(CustomToolParam).keys()
    messages(dict.fromkeys(get_type_hints(BetaToolParam), "x") | unknown)
