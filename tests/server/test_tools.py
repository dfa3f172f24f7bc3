"""Tool calls through every protocol of a real `vllm serve` with MTP, by the official clients."""

from __future__ import annotations

import json

import httpx
import jsonschema
import openai
import pytest

pytestmark = pytest.mark.server

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "at": {"type": "array", "items": {"enum": ["am", "pm"]}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
NAMES = ("lookup", "ping")
ASK = "What is the weather?"


def chat_tool(name="lookup", parameters=PARAMETERS, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


CHAT_TOOLS = [chat_tool(strict=True), {"type": "function", "function": {"name": "ping"}}]
RESPONSES_TOOLS = [
    {"type": "function", "name": "lookup", "parameters": PARAMETERS, "strict": True},
    {"type": "function", "name": "ping", "parameters": None, "strict": False},
]


def chat(client, *, stream=False, thinking=False, **fields):
    """One answer as (reasoning, content, calls, finish reason), however it came."""
    body = {"chat_template_kwargs": {"enable_thinking": thinking}, **fields.pop("extra_body", {})}
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": ASK}],
        max_tokens=fields.pop("max_tokens", 700),
        seed=fields.pop("seed", 1),
        stream=stream,
        extra_body=body,
        **fields,
    )
    if not stream:
        choice = answer.choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        return (
            getattr(choice.message, "reasoning", None) or "",
            choice.message.content or "",
            calls,
            choice.finish_reason,
        )
    reasoning, content, finish, calls = "", "", None, []
    for chunk in answer:
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                if call.id:
                    assert call.index == len(calls)
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
    return reasoning, content, [tuple(call) for call in calls], finish


def check_calls(calls):
    assert calls
    for name, arguments in calls:
        assert name in NAMES
        if name == "lookup":
            jsonschema.validate(json.loads(arguments), PARAMETERS)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_and_an_aggregate_are_equal(client, seed):
    whole, stream = (
        chat(client, tools=CHAT_TOOLS, tool_choice="required", stream=stream, temperature=0, seed=seed)
        for stream in (False, True)
    )
    assert whole == stream


def test_json_or_calls(client):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
    kinds = set()
    for seed in range(12):
        _, content, calls, finish = chat(client, tools=CHAT_TOOLS, response_format=form, seed=seed, temperature=1.5)
        assert bool(content) != bool(calls)
        if finish == "length":
            continue
        if calls:
            check_calls(calls)
        else:
            jsonschema.validate(json.loads(content), ANSWER)
        kinds.add(bool(calls))
    assert kinds == {False, True}


def test_two_choices_carry_the_contract(client):
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": ASK}],
        tools=[CHAT_TOOLS[0]],
        tool_choice="required",
        parallel_tool_calls=False,
        n=3,
        seed=5,
        temperature=1.0,
        max_tokens=400,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    for choice in answer.choices:
        check_calls([(call.function.name, call.function.arguments) for call in choice.message.tool_calls])


def test_strict_does_not_reach_the_prompt(client, claude, tiny_server):
    """Of no endpoint that renders tools: generating, counting, tokenising."""
    question = [{"role": "user", "content": ASK}]

    def chat_prompt(**more):
        answer = client.chat.completions.create(
            model="tiny",
            messages=question,
            max_tokens=1,
            tools=[chat_tool(**more)],
            extra_body={"return_token_ids": True},
        )
        return answer.prompt_token_ids

    def tokenised(**more):
        body = {"model": "tiny", "messages": question, "tools": [chat_tool(**more)]}
        return httpx.post(f"{tiny_server.url}/tokenize", json=body).json()["tokens"]

    def responses_prompt(**more):
        tool = {"type": "function", "name": "lookup", "parameters": PARAMETERS, **more}
        return client.responses.create(model="tiny", input=ASK, tools=[tool], max_output_tokens=1).usage.input_tokens

    def messages_prompt(**more):
        tool = {"name": "lookup", "input_schema": PARAMETERS, **more}
        answer = claude.messages.create(model="tiny", messages=question, tools=[tool], max_tokens=1)
        counted = claude.messages.count_tokens(model="tiny", messages=question, tools=[tool])
        assert answer.usage.input_tokens == counted.input_tokens
        return answer.usage.input_tokens

    for prompt in (chat_prompt, tokenised, responses_prompt, messages_prompt):
        assert prompt() == prompt(strict=True) == prompt(strict=False)
    assert tokenised(strict=True) == chat_prompt()


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        ([chat_tool(), chat_tool()], "tools[1].function.name"),
        (
            [chat_tool(), chat_tool("f", {**PARAMETERS, "properties": {"a": {}}, "required": []}, strict=True)],
            "tools[1].function.parameters#/properties/a",
        ),
        (
            [chat_tool("f", {"type": "object", "properties": {"a": {"type": "integer"}}}, strict=True)],
            "tools[0].function.parameters#",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_that_cannot_be_enforced_is_refused_with_its_place(client, tools, place, stream):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, tools=tools, stream=stream)
    assert refused.value.param == place


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_cut_call_in_a_stream_of_responses_is_no_finished_one(client, kind):
    """Calls before it stay; it has no arguments, and nothing says that they are done."""
    long = {"type": "object", "properties": {"v": {"const": "x" * 400}}, "required": ["v"]}
    form = {"type": "grammar", "syntax": "regex", "definition": "x{400}"}
    tool = (
        {"type": "custom", "name": "f", "format": form}
        if kind == "custom"
        else {"type": "function", "name": "f", "parameters": {**long, "additionalProperties": False}, "strict": True}
    )
    *events, last = client.responses.create(
        model="tiny",
        input=ASK,
        tools=[tool],
        tool_choice="required",
        max_output_tokens=40,
        stream=True,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert (last.response.status, last.response.output) == ("incomplete", [])
    kinds = [event.type for event in events]
    assert any(name.endswith(".delta") for name in kinds)
    assert not any("arguments.done" in name or "input.done" in name for name in kinds)
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.status, item.arguments) for item in items] == ([("incomplete", "")] if kind == "function" else [])


def test_responses_errors_have_the_path_of_the_request(client):
    broken = {**RESPONSES_TOOLS[0], "parameters": {**PARAMETERS, "properties": {"a": {}}, "required": []}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="tiny", input=ASK, tools=[RESPONSES_TOOLS[1], broken])
    assert refused.value.param == "tools[1].parameters#/properties/a"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools(client, mode, stream):
    named = [{"type": "function", "function": {"name": "ping"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
    for seed in range(3):
        *_, calls, finish = chat(
            client, tools=CHAT_TOOLS, tool_choice=choice, stream=stream, seed=seed, temperature=1.5, max_tokens=200
        )
        assert {name for name, _ in calls} <= {"ping"}
        assert calls or mode == "auto" or finish == "length"


@pytest.mark.parametrize(
    "allowed",
    [
        {"mode": "required", "tools": [{"type": "function", "function": {"name": "pong"}}]},
        {"mode": "none", "tools": [{"type": "function", "function": {"name": "ping"}}]},
        {"mode": "auto", "tools": []},
        {"mode": "auto"},
    ],
    ids=["undeclared", "mode", "empty", "missing"],
)
def test_a_wrong_list_of_allowed_tools_is_refused(client, allowed):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, tools=CHAT_TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert refused.value.param.startswith("tool_choice")


def test_counting_compiles_nothing(tiny_server, claude):
    """A tool that no grammar can be made for is counted all the same, and ``strict`` adds no token."""
    impossible = {"type": "object", "properties": {"a": {}}, "required": []}

    def counted(**more):
        tools = [{"name": "f", "input_schema": impossible, **more}]
        messages = [{"role": "user", "content": ASK}]
        return claude.messages.count_tokens(model="tiny", messages=messages, tools=tools).input_tokens

    assert counted(strict=True) == counted()
    answer = httpx.post(
        f"{tiny_server.url}/tokenize",
        json={
            "model": "tiny",
            "messages": [{"role": "user", "content": ASK}],
            "tools": [chat_tool(parameters=impossible, strict=True)],
        },
    )
    assert answer.status_code == 200
    assert answer.json()["count"] > 0
