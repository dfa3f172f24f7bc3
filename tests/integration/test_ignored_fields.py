"""Constraints that vLLM would ignore are refused in every API; other unknown fields are none of our business."""

import dataclasses
from typing import get_type_hints

import pytest
from pydantic import ConfigDict
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError

from infernix_plugin.entrypoints.ignored_fields import _HOLDERS, refuse_ignored
from infernix_plugin.entrypoints.messages import carry_over
from infernix_plugin.entrypoints.structured_outputs import KINDS, OPTIONS, check_messages_fields
from infernix_plugin.entrypoints.token_request import check_body
from infernix_plugin.entrypoints.validation import refuse_conflicts

MESSAGES = [{"role": "user", "content": "q"}]
REGEX = {"regex": "a"}
OBJECT = {"type": "json_object"}


def chat(**fields):
    return refuse_conflicts(ChatCompletionRequest.model_validate({"model": "m", "messages": MESSAGES, **fields}))


def completions(**fields):
    return refuse_conflicts(CompletionRequest.model_validate({"model": "m", "prompt": "q", **fields}))


def responses(**fields):
    return refuse_conflicts(ResponsesRequest.model_validate({"model": "m", "input": "q", **fields}))


def messages(**fields):
    class Given(AnthropicMessagesRequest):  # as the seam makes it
        model_config = ConfigDict(extra="allow")

    given = Given.model_validate({"model": "m", "max_tokens": 9, "messages": MESSAGES, **fields})
    asked = ChatCompletionRequest.model_validate({"model": "m", "messages": MESSAGES})
    carry_over(given, asked)
    return refuse_conflicts(asked)


EVERY = {"chat": chat, "completions": completions, "responses": responses, "messages": messages}
OWN = {
    "chat": ChatCompletionRequest,
    "completions": CompletionRequest,
    "responses": ResponsesRequest,
    "messages": AnthropicMessagesRequest,
}
FORMAT = {
    "chat": "response_format",
    "completions": "response_format",
    "responses": "text.format",
    "messages": "output_config.format",
}


def refused(ask, **fields):
    with pytest.raises(VLLMValidationError) as error:
        ask(**fields)
    return error.value.parameter, str(error.value)


@pytest.mark.parametrize("api", EVERY)
@pytest.mark.parametrize("name", ["structured_output", "structuredOutputs", "structure_outputs"])
def test_nearly_structured_outputs(api, name):
    place, text = refused(EVERY[api], **{name: REGEX})
    assert place == name
    assert text.endswith("Hint: Did you mean structured_outputs?")


@pytest.mark.parametrize("api", EVERY)
@pytest.mark.parametrize("name", ["response_fromat", "responseFormat", "response_formats"])
def test_nearly_a_response_format(api, name):
    place, text = refused(EVERY[api], **{name: OBJECT})
    assert place == name
    assert text.endswith(f"Hint: Did you mean {FORMAT[api]}?")


@pytest.mark.parametrize("api", EVERY)
@pytest.mark.parametrize("name", [*KINDS, *OPTIONS])
def test_a_key_of_structured_outputs_at_the_top(api, name):
    place, text = refused(EVERY[api], **{name: True})
    assert place == name
    assert text.endswith(f'Hint: It is a key of structured_outputs: {{"{name}": ...}}.')
    EVERY[api](**{name: None})


@pytest.mark.parametrize("api", EVERY)
@pytest.mark.parametrize(("name", "key"), [("ebnf", "grammar"), ("json_schema", "json")])
def test_constraints_of_other_servers(api, name, key):
    place, text = refused(EVERY[api], **{name: "{}"})
    assert (place, text.partition("Hint: ")[2]) == (name, f'It is said as structured_outputs: {{"{key}": ...}}.')


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [("functions", [{"name": "f"}], "tools"), ("function_call", {"name": "f"}, "tool_choice")],
)
def test_the_first_fields_for_tools(api, name, value, meant):
    place, text = refused(EVERY[api], **{name: value})
    assert (place, text.partition("Hint: ")[2]) == (name, f"Its name here is {meant}.")
    completions(**{name: value})
    EVERY[api](function_call="none", functions=[])


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("name", ["paralel_tool_calls", "parallelToolCalls", "parallel_tool_call"])
def test_nearly_the_switch_for_several_calls(api, name):
    """It asks for something by being false."""
    place, text = refused(EVERY[api], **{name: False})
    assert (place, text.partition("Hint: ")[2]) == (name, "Did you mean parallel_tool_calls?")
    EVERY[api](**{name: None})


@pytest.mark.parametrize("api", EVERY)
def test_nearly_a_guided_field(api):
    assert refused(EVERY[api], guided_jsn="{}")[1].endswith("Hint: Did you mean guided_json?")


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_the_response_format_of_another_api(api):
    place, text = refused(EVERY[api], response_format=OBJECT)
    assert (place, text.partition("Hint: ")[2]) == ("response_format", f"Its name here is {FORMAT[api]}.")


@pytest.mark.parametrize("api", EVERY)
def test_the_output_format_of_older_clients(api):
    place, text = refused(EVERY[api], output_format={"type": "json_schema", "schema": {}})
    assert (place, text.partition("Hint: ")[2]) == ("output_format", f"Its name here is {FORMAT[api]}.")


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("name", ["text", "output_config"])
def test_holders_of_a_format_in_other_apis(api, name):
    place, text = refused(EVERY[api], **{name: {"format": {"type": "json_schema", "schema": {}}}})
    assert (place, text.partition("Hint: ")[2]) == (name, "Its name here is response_format.")


@pytest.mark.parametrize("api", EVERY)
@pytest.mark.parametrize("name", ["structured_outputs", "structured_output", "guided_json", "response_format"])
def test_an_extra_body_that_is_sent_as_such(api, name):
    place, text = refused(EVERY[api], extra_body={"top_k": 1, name: {}})
    assert place == f"extra_body.{name}"
    assert "extra_body is an argument of a client" in text


@pytest.mark.parametrize("name", ["structured_outputs", "structured_output", "guided_json", "response_format"])
def test_constraints_in_fields_for_something_else(name):
    assert refused(chat, chat_template_kwargs={"a": 1, name: OBJECT})[0] == f"chat_template_kwargs.{name}"
    assert refused(chat, vllm_xargs={"a": 1, name: "{}"})[0] == f"vllm_xargs.{name}"
    assert refused(completions, vllm_xargs={name: "{}"})[0] == f"vllm_xargs.{name}"


@pytest.mark.parametrize("api", EVERY)
def test_other_unknown_fields_and_absent_ones_stay(api):
    others = {"text": {"a": 1}} if api != "responses" else {}
    others |= {"structured": 1, "format": {"type": "x"}, "output_format": "png", "guidance": 3, "response": {}}
    absent = {"structured_output": None, "extra_body": {"top_k": 1, "response_format": None}}
    assert EVERY[api](**others, **absent) is None
    if api == "chat":
        assert chat(chat_template_kwargs={"enable_thinking": False, "format": 1}, vllm_xargs={"response": "x"}) is None


@pytest.mark.parametrize(
    ("api", "name", "meant"),
    [
        ("chat", "tool_choise", "tool_choice"),
        ("responses", "toolChoice", "tool_choice"),
        ("chat", "thinking_token_budgt", "thinking_token_budget"),
        ("messages", "output_confg", "output_config"),
        ("responses", "texts", "text"),
        ("chat", "tool", "tools"),
        ("messages", "Tools", "tools"),
        ("chat", "max_token", "max_tokens"),
        ("responses", "max_outputs_tokens", "max_output_tokens"),
        ("completions", "stops", "stop"),
        ("messages", "stop_sequence", "stop_sequences"),
        ("chat", "logits_bias", "logit_bias"),
    ],
)
def test_slips_of_further_fields(api, name, meant):
    place, text = refused(EVERY[api], **{name: "auto"})
    assert (place, text.partition("Hint: ")[2]) == (name, f"Did you mean {meant}?")


@pytest.mark.parametrize("api", EVERY)
def test_every_field_that_an_api_has_passes_in_all_of_them(api):
    """Those of vLLM's APIs, and those that only OpenAI and Anthropic know."""
    from anthropic.types.beta import message_create_params as anthropic
    from openai.types import completion_create_params as completion
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as response
    from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest

    requests = (
        *(ChatCompletionRequest, CompletionRequest, ResponsesRequest),
        *(AnthropicMessagesRequest, BatchChatCompletionRequest),
    )
    clients = (
        *(chat.CompletionCreateParamsBase, completion.CompletionCreateParamsBase),
        *(response.ResponseCreateParamsBase, anthropic.MessageCreateParamsBase),
    )
    known = {name for request in requests for name in request.model_fields}
    known |= {name for client in clients for name in get_type_hints(client)}
    older = {"functions", "function_call", "guided_decoding_backend"}
    elsewhere = {"response_format", "structured_outputs"}  # constraints, and judged as such above
    assert older | elsewhere <= known
    for name in known - older - elsewhere:
        refuse_ignored({name: "x"}, (), OWN[api].model_fields)


@pytest.mark.parametrize("api", EVERY)
def test_options_of_other_servers_pass(api):
    others = (
        *("max_new_tokens", "min_new_tokens", "max_length", "n_predict", "num_predict", "num_ctx", "repeat_penalty"),
        *("do_sample", "typical_p", "top_a", "mirostat", "stop_words", "stop_regex", "no_stop_trim", "lora_path"),
        *("custom_params", "separate_reasoning", "rid", "best_of", "watermark", "truncate", "options", "tags"),
        *("enable_thinking", "toolkit", "tool_config", "tool_resources", "agents", "plugins", "provider", "models"),
    )
    EVERY[api](**dict.fromkeys(others, 5))


def test_fields_that_another_api_has_are_none_of_our_business():
    completions(tool_choice="auto", text="x", metadata={}, user="u", context="c")
    responses(thinking_token_budget=5, test=1)


@pytest.mark.parametrize("value", ["x", 5, [1], {"a": 1}, True])
@pytest.mark.parametrize("api", EVERY)
def test_fields_of_another_api_do_no_harm(api, value):
    """vLLM keeps them as attributes beside the declared ones."""
    beyond = {
        "completions": ("tools", "tool_choice", "messages", "text", "continue_final_message"),
        "chat": ("text", "input"),
        "responses": ("messages", "continue_final_message"),
        "messages": ("text", "logit_bias", "stop_token_ids"),
    }
    for name in beyond[api]:
        if not (name in _HOLDERS and isinstance(value, dict)):
            EVERY[api](**{name: value})


@pytest.mark.parametrize("name", ["schema", "json_schema"])
def test_a_schema_in_a_format_that_reads_none(name):
    """As llama.cpp takes it."""
    schema = {"type": "object"} if name == "schema" else {"name": "n", "schema": {"type": "object"}}
    asked = {"type": "json_object", name: schema}
    for api, place in (("chat", "response_format"), ("completions", "response_format"), ("responses", "text.format")):
        given = {"text": {"format": asked}} if api == "responses" else {"response_format": asked}
        found, text = refused(EVERY[api], **given)
        assert found == f"{place}.{name}"
        assert text.endswith("Hint: A schema stands in a format of the type json_schema.")
    chat(response_format={"type": "json_object"})


@pytest.mark.parametrize(("name", "meant"), [("sctrict", "strict"), ("parametres", "parameters")])
def test_slips_in_tools(name, meant):
    function = {"name": "f", name: True}
    place, text = refused(chat, tools=[{"type": "function", "function": function}])
    assert (place, text.partition("Hint: ")[2]) == (f"tools[0].function.{name}", f"Did you mean {meant}?")
    chat(tools=[{"type": "function", "function": {"name": "f", "strict": True, "cache_control": 1}}])


@pytest.mark.parametrize(("name", "value"), [("strict", True), ("parameters", {"type": "object"})])
def test_members_of_a_function_beside_it(name, value):
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": 1}
    place, text = refused(chat, tools=[tool, {**tool, name: value}])
    assert (place, text.partition("Hint: ")[2]) == (f"tools[1].{name}", "It belongs inside function.")
    chat(tools=[{**tool, name: None}])


@pytest.mark.parametrize(
    ("fields", "place", "meant"),
    [
        ({"tools": [{"name": "f", "input_schema": {}, "srict": True}]}, "tools[0].srict", "strict"),
        (
            {"tool_choice": {"type": "any", "disable_paralel_tool_use": True}},
            "tool_choice.disable_paralel_tool_use",
            "disable_parallel_tool_use",
        ),
    ],
)
def test_slips_in_tools_of_messages(fields, place, meant):
    found, text = refused(check_messages_fields, request=fields)
    assert (found, text.partition("Hint: ")[2]) == (place, f"Did you mean {meant}?")
    right = {
        "tools": [{"name": "f", "input_schema": {}, "strict": True, "cache_control": {}, "type": "custom"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }
    assert check_messages_fields(right) is right
    for wrong in ({"tools": [1]}, {"tools": "x", "tool_choice": "any"}, [1]):  # vLLM refuses their types
        assert check_messages_fields(wrong) is wrong


@pytest.mark.parametrize("api", EVERY)
def test_what_asks_for_nothing_is_not_refused(api):
    EVERY[api](guided_json_object=None, guided_whitespace_pattern=None, guided_decoding_backend=None)
    EVERY[api](structured_output=None, structuredOutputs=False, guided_jsn="")
    EVERY[api](
        response_fromat={"type": "text"}, chat_template_kwargs={"response_format_hint": "x", "guided_json": None}
    )
    if api in ("chat", "completions"):
        EVERY[api](text={"format": {"type": "text"}}, output_format={"type": "text"})


def test_a_batch_of_chats_reads_what_vllm_wrote_down():
    from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest

    batch = {"model": "m", "messages": [MESSAGES, MESSAGES]}
    for given in (
        {"structured_outputs": REGEX},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
    ):
        request = BatchChatCompletionRequest.model_validate({**batch, **given})
        refuse_conflicts(request)
        for messages in request.messages:
            refuse_conflicts(request.to_chat_completion_request(messages))
    request = BatchChatCompletionRequest.model_validate(
        {**batch, "response_format": {"type": "json_object", "schema": {}}}
    )
    with pytest.raises(VLLMValidationError, match="has no schema"):
        refuse_conflicts(request)


def tokens(**fields):
    from vllm import SamplingParams
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest

    body = {"token_ids": [1], "sampling_params": {}, **fields}
    return check_body(body, GenerateRequest.model_fields, SamplingParams.__struct_fields__)


@pytest.mark.parametrize(
    ("fields", "place", "hint"),
    [
        ({"structured_outputs": REGEX}, "structured_outputs", "It belongs inside sampling_params."),
        ({"max_tokens": 5}, "max_tokens", "It belongs inside sampling_params."),
        ({"response_format": OBJECT}, "response_format", "Its name here is structured_outputs."),
        ({"regex": "a"}, "regex", 'It is a key of structured_outputs: {"regex": ...}.'),
        ({"guided_json": {}}, "guided_json", 'It is said as structured_outputs: {"json": ...}.'),
        ({"structured_output": REGEX}, "structured_output", "Did you mean structured_outputs?"),
    ],
)
def test_tokens_in_and_out(fields, place, hint):
    found, text = refused(tokens, **fields)
    assert (found, text.partition("Hint: ")[2]) == (place, hint)
    if "sampling_params" not in hint:
        found, text = refused(tokens, sampling_params=fields)
        assert (found, text.partition("Hint: ")[2]) == (f"sampling_params.{place}", hint)


def test_what_tokens_in_and_out_take():
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    given = StructuredOutputsParams(regex="a")
    every = dict.fromkeys(SamplingParams.__struct_fields__) | {"max_tokens": 5, "stop": ["x"], "anything": 1}
    tokens(sampling_params={**every, "structured_outputs": dataclasses.asdict(given)}, request_id="x", anything=[1])
    tokens(sampling_params=SamplingParams(structured_outputs=given))
    found, text = refused(tokens, sampling_params={"structured_outputs": {"regex": "a", "regx": 1}})
    assert (found, text.partition("Hint: ")[2]) == (
        "sampling_params.structured_outputs.regx",
        "Did you mean regex?",
    )
