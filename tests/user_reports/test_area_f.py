"""What users reported in area F (a last message that the output continues), put right, against the real server.

The ids are those of the project's log of public threads; the inputs are minimal and our own.
"""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.server

ASK = {"role": "user", "content": "q"}
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def turn(written: str) -> list[dict]:
    return [ASK, {"role": "assistant", "content": written}]


@pytest.mark.parametrize("thinking", [True, False])
def test_f1_a_continued_answer_is_content_whatever_the_thinking_option_says(api, thinking):
    options = {"chat_template_kwargs": {"enable_thinking": thinking}}
    reasoning, content, _, _ = api.chat(messages=turn("The answer"), max_tokens=8, **CONTINUE, **options)
    assert not reasoning
    assert content


def test_f2_a_trailing_assistant_message_is_a_new_turn_in_chat_and_goes_on_in_messages(api):
    reasoning, content, _, finish = api.chat(
        messages=turn('{"a":'), response_format=FORM, thinking_token_budget=4, max_tokens=300
    )
    assert reasoning
    assert finish == "stop"
    assert 0 <= json.loads(content)["a"] <= 99
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    answer = api("/v1/messages", messages=turn('{"a":'), output_config=form, max_tokens=300)
    (block,) = answer["content"]
    assert 0 <= json.loads('{"a":' + block["text"])["a"] <= 99


@pytest.mark.parametrize(
    "written", ["<think>short plan</think>\n", "<think>\nshort plan\n</think>\n\n", "<think>short plan</think>"]
)
@pytest.mark.parametrize("begun", ["", '{"a": 1'])
def test_f3_closed_reasoning_in_the_message_is_over(api, written, begun):
    reasoning, content, _, finish = api.chat(
        messages=turn(written + begun), response_format=FORM, max_tokens=300, **CONTINUE
    )
    assert (reasoning, finish) == ("", "stop")
    assert 0 <= json.loads(begun + content)["a"] <= 99


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_f4_open_reasoning_in_the_message_goes_on_until_its_end(api, stream):
    reasoning, content, _, finish = api.chat(
        stream=stream,
        messages=turn("<think>\nstep 1"),
        response_format=FORM,
        thinking_token_budget=20,
        max_tokens=300,
        **CONTINUE,
    )
    assert reasoning
    assert "think>" not in reasoning
    assert finish == "stop"
    assert 0 <= json.loads(content)["a"] <= 99


def test_f5_a_written_prefix_advances_the_constraint_and_an_illegal_one_is_a_400_with_its_offset(api):
    for prefix in ('{"a": 1', '{"a"', "{"):
        _, suffix, _, finish = api.chat(messages=turn(prefix), response_format=FORM, max_tokens=300, **CONTINUE)
        assert finish == "stop"
        assert 0 <= json.loads(prefix + suffix)["a"] <= 99
    for prefix, place in (('{"b', "offset 2"), ('{"a": x', "offset 6")):
        status, error = api.status("/v1/chat/completions", messages=turn(prefix), response_format=FORM, **CONTINUE)
        assert (status, error["error"]["param"]) == (400, place)
