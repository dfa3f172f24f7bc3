"""What users reported in area C (thinking beside constraints), put right.

The ids are those of the project's log of public threads; the inputs are minimal and our own. Budgets make the tiny
model's reasoning short, so that every request reaches its content.
"""

from __future__ import annotations

import json
import random

import pytest

from infernix_plugin.framing.events import ContentText
from infernix_plugin.framing.phases import prompt_framing
from infernix_plugin.framing.reader import OutputReader
from infernix_plugin.framing.tools.contract import ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from tests.framing.calling import (
    COMPILER,
    CONTROL,
    DOMAIN,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    required,
    session_of,
    tokens_of,
)
from tests.framing.test_tool_grammar import FREE, PING, call

CITY = {
    "type": "object",
    "properties": {"location": {"enum": ["London", "New York"]}},
    "required": ["location"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": CITY}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("ping", "look")]
CLOSE = CONTROL["</think>"]
server = pytest.mark.server


def thinking_session(constraint: OutputConstraint):
    return COMPILER.prepare(constraint, framing=THINKING).compiled.session()


def test_c1_an_open_block_in_the_prompt_is_found_without_any_flag_and_never_constrained():
    prompt = tokens_of("<|im_start|>assistant\n<think>\n")
    assert prompt_framing(prompt, DOMAIN) == THINKING
    schema = OutputConstraint.json_schema(json.dumps(CITY))
    answer = '{"location":"London"}'
    assert is_allowed(thinking_session(schema), [*tokens_of(f"free text {{[</think>\n\n{answer}"), STOP])
    for text in (answer, "free text", f"</think>{answer}", "</think>\n\n"):
        assert not is_allowed(thinking_session(schema), [*tokens_of(text), STOP])


@server
def test_c2_the_answer_is_content_when_thinking_is_off(api):
    reasoning, content, _, finish = api.chat(response_format=FORM, **OFF)
    assert (reasoning, finish) == ("", "stop")
    assert json.loads(content)["location"] in ("London", "New York")


@server
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_c3_a_choice_is_content_and_not_reasoning(api, stream):
    choices = ["positive", "negative"]
    reasoning, content, _, finish = api.chat(
        stream=stream, structured_outputs={"choice": choices}, thinking_token_budget=8
    )
    assert content in choices
    assert finish == "stop"
    assert not any(choice in reasoning for choice in choices)


@server
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("budget", [0, 2, 3, 4, 5])
def test_c4_c5_a_budget_is_kept_nothing_of_the_close_leaks_and_json_has_its_tokens(api, budget, stream):
    fields = {"response_format": FORM, "thinking_token_budget": budget, "temperature": 1.5, "seed": 3}
    reasoning, content, _, finish = api.chat(stream=stream, **fields)
    assert finish == "stop"
    assert content[0] == "{"
    assert json.loads(content)["location"] in ("London", "New York")
    assert "think" not in reasoning + content
    free, *_ = api.chat(stream=stream, temperature=1.5, seed=3, thinking_token_budget=200)
    assert free.startswith(reasoning)


@server
def test_c5_the_tokens_of_the_reasoning_are_counted_once(api):
    answer = api(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "q"}],
        response_format=FORM,
        thinking_token_budget=4,
        temperature=1.5,
        max_tokens=200,
        return_token_ids=True,
    )
    choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
    assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]
    close = api("/tokenize", prompt="</think>", add_special_tokens=False)["tokens"]
    opening = api("/tokenize", prompt="<think>", add_special_tokens=False)["tokens"]
    assert [len(close), len(opening)] == [1, 1]
    in_prompt = prompt[::-1].index(opening[0])
    assert choice["token_ids"].count(close[0]) == 1
    assert choice["token_ids"].index(close[0]) <= max(4 - in_prompt, 0)


@server
def test_c4_c5_a_budget_beside_tools(api):
    for budget in (0, 3):
        reasoning, content, calls, finish = api.chat(
            tools=TOOLS, tool_choice="required", parallel_tool_calls=False, thinking_token_budget=budget
        )
        assert (content, finish, len(calls)) == ("", "tool_calls", 1)
        assert bool(reasoning) == bool(budget)


def test_c6_a_raw_grammar_leaves_the_reasoning_alone_and_its_end_in_reach():
    session = thinking_session(OutputConstraint.grammar("root ::= [a-z]+"))
    assert is_allowed(session, [*b"ANY 12 text", CLOSE, *b"\n\nabc", STOP])
    assert not is_allowed(thinking_session(OutputConstraint.grammar("root ::= [a-z]+")), [*b"x", CLOSE, *b"\n\nA"])
    assert not is_allowed(thinking_session(OutputConstraint.grammar("root ::= [a-z]+")), [*b"x", STOP])


@server
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_c7_a_plain_chat_with_a_budget_shows_no_tag(api, stream):
    reasoning, content, *_ = api.chat(stream=stream, thinking_token_budget=5, max_tokens=40, temperature=1.5)
    assert "think>" not in reasoning + content
    assert len(reasoning) > 0


@pytest.mark.parametrize("seed", range(8))
def test_c8_the_first_byte_of_content_is_the_first_of_the_json_for_every_chunking(seed):
    rng = random.Random(seed)
    ids = [*b"why", CLOSE, *tokens_of('\n\n{"a": 1}', rng), STOP]
    reader = OutputReader(form_of(ToolContract((PING,)), enforced=True, framing=THINKING, free=False), DOMAIN)
    texts = []
    while ids:
        size = rng.randint(1, 4)
        texts += [event.text for event in reader.feed(ids[:size]) if isinstance(event, ContentText)]
        ids = ids[size:]
    assert texts[0][0] == "{"
    assert "".join(texts) == '{"a": 1}'


def test_c9_required_thinks_freely_and_then_calls():
    session = session_of(required(PING, FREE), framing=THINKING)
    assert is_allowed(session, [*b"Which one? ", CLOSE, *tokens_of("\n\n" + call("look")), STOP])
    for text in ("", "no call"):
        answer = [*b"Which one? ", CLOSE, *tokens_of("\n\n" + text), STOP]
        assert not is_allowed(session_of(required(PING, FREE), framing=THINKING), answer)
