"""Constraints that vLLM would ignore are refused in every API; other unknown fields are none of our business."""

import pytest
from pydantic import ConfigDict
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError

from infernix_plugin.entrypoints.messages import carry_over
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
