"""A last message of the assistant is continued: the suffix alone is published, and satisfies the constraint with it."""

from __future__ import annotations

import json

import openai
import pytest

pytestmark = pytest.mark.server

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}


def ask(client, written, *, stream=False, **fields):
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "q"}, {"role": "assistant", "content": written}],
        max_tokens=300,
        seed=2,
        stream=stream,
        extra_body={**CONTINUE, **fields.pop("extra_body", {})},
        **fields,
    )
    if not stream:
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason
    choices = [choice for chunk in answer for choice in chunk.choices]
    return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("written", ['{"a": 1', '{"a"', '{"a": 12, "b": "x', '{"a": 1,\n "b"'])
def test_prefix_and_suffix_are_one_answer(client, written, stream):
    suffix, finish = ask(client, written, stream=stream, response_format=FORM)
    assert not suffix.startswith(written)
    assert finish == "length" or set(json.loads(written + suffix)) == {"a", "b"}


def test_choice_and_regex(client):
    for structured in ({"choice": ["yes, sir", "yes, madam"]}, {"regex": "yes, (sir|madam)"}):
        suffix, finish = ask(client, "yes, ma", extra_body={"structured_outputs": structured})
        assert (suffix, finish) == ("dam", "stop")


@pytest.mark.parametrize(("written", "place"), [('{"b"', "offset 2"), ('{"a": 1}', "offset 7"), ("[", "offset 0")])
def test_an_illegal_prefix_is_a_400_with_its_offset(client, written, place):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, written, response_format=FORM)
    assert refused.value.param == place


def test_a_message_that_the_template_changes_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="template"):
        ask(client, '{"a": ', response_format=FORM)


def test_the_last_message_of_the_messages_api(claude):
    answer = claude.messages.create(
        model="tiny",
        max_tokens=300,
        messages=[{"role": "user", "content": "q"}, {"role": "assistant", "content": '{"a": 1'}],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    text = "".join(block.text for block in answer.content if block.type == "text")
    assert answer.stop_reason == "max_tokens" or set(json.loads('{"a": 1' + text)) == {"a", "b"}
