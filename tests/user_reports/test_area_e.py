"""What users reported in area E (Messages and Responses), put right, against the real server.

The ids are those of the project's log of public threads; the inputs are minimal and our own.
"""

from __future__ import annotations

import json
import re

import openai
import pytest

from infernix_plugin.framing.tools.contract import ToolContract
from tests.framing.calling import STOP, form_of, read, tokens_of
from tests.framing.test_tool_grammar import PING, call
from tests.user_reports.conftest import THINK_OFF

pytestmark = pytest.mark.server

ASK = {"role": "user", "content": "q"}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTION = {"type": "function", "name": "ping", "parameters": NO_ARGUMENTS, "strict": True}
TOOL = {"name": "ping", "input_schema": NO_ARGUMENTS, "strict": True}
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
ONE_CALL = {"parallel_tool_calls": False, "max_output_tokens": 200, **THINK_OFF}


@pytest.fixture(scope="module")
def client(tiny_server):
    return openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="none", max_retries=0, timeout=120)


def test_e1_a_streamed_call_of_responses_is_no_text(api):
    events = api.events("/v1/responses", input="q", tools=[FUNCTION], tool_choice="required", **ONE_CALL)
    kinds = [event["type"] for event in events]
    assert "response.output_text.delta" not in kinds
    fragments = "".join(one["delta"] for one in events if one["type"] == "response.function_call_arguments.delta")
    (done,) = (event for event in events if event["type"] == "response.function_call_arguments.done")
    assert fragments == done["arguments"] == "{}"
    for kind in ("response.output_item.added", "response.output_item.done"):
        assert "function_call" in [event["item"]["type"] for event in events if event["type"] == kind]


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
def test_e2_the_format_of_responses_holds_with_and_without_thinking(api, thinking):
    form = {"format": {"type": "json_schema", "name": "x", "schema": ANSWER}}
    answer = api("/v1/responses", input="q", text=form, max_output_tokens=300, **({} if thinking else THINK_OFF))
    texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    if answer["status"] == "completed":
        assert json.loads(texts[0]) in ({"ok": True}, {"ok": False})
    assert all(text.startswith("{") for text in texts)
    assert thinking or not any(item["type"] == "reasoning" for item in answer["output"])


def test_e3_a_history_with_thinking_and_a_tool_result_is_accepted(api):
    turn = [
        {"type": "thinking", "thinking": "plan", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "ping", "input": {}},
    ]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
    answer = api(
        "/v1/messages", messages=[ASK, {"role": "assistant", "content": turn}, result], tools=[TOOL], max_tokens=4
    )
    assert answer["stop_reason"] in ("max_tokens", "end_turn", "tool_use")


def test_e4_property_names_in_a_tool_of_the_messages_api(api):
    names = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "boolean"}}
    schema = {"type": "object", "properties": {"m": names}, "additionalProperties": False}
    fields = {"messages": [ASK], "max_tokens": 300, "tool_choice": {"type": "any"}, **THINK_OFF}
    answer = api("/v1/messages", tools=[{"name": "f", "input_schema": schema, "strict": True}], **fields)
    for block in answer["content"]:
        assert block["type"] == "tool_use" or not block["text"]
        for value in block.get("input", {}).get("m", {}).values():
            assert isinstance(value, bool)
    wrong = {**schema, "additionalProperties": True}
    status, error = api.status("/v1/messages", tools=[{"name": "f", "input_schema": wrong, "strict": True}], **fields)
    assert (status, error["type"]) == (400, "error")
    assert "tools[0].input_schema#" in error["error"]["message"]
    form = {"format": {"type": "json_schema", "schema": {"type": "string", "pattern": "("}}}
    status, error = api.status("/v1/messages", messages=[ASK], max_tokens=9, output_config=form)
    assert status == 400
    assert error["error"]["message"].startswith("output_config.format: ")


def test_e5_a_system_message_in_the_middle_is_merged(api):
    messages = [ASK, {"role": "assistant", "content": "a"}, {"role": "system", "content": "Be brief."}, ASK]
    assert api("/v1/messages", messages=messages, max_tokens=2)["type"] == "message"


def test_e6_a_call_behind_text_ends_with_tool_use_and_a_cut_one_with_max_tokens(api):
    fields = {"messages": [ASK], "tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    events = api.events("/v1/messages", max_tokens=200, **fields, **THINK_OFF)
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["tool_use"]
    events = api.events("/v1/messages", max_tokens=5, **fields, **THINK_OFF)
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["max_tokens"]
    contract = ToolContract((PING,))
    output = read(form_of(contract, enforced=True), [*tokens_of("I look.\n\n" + call("ping")), STOP])
    assert (output.content, len(output.complete_calls)) == ("I look.", 1)


def test_e7_a_tool_result_of_text_parts_is_the_text(api):
    def prompt(content) -> list[int]:
        called = {"id": "c", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
        messages = [
            ASK,
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": content},
        ]
        answer = api("/v1/chat/completions", messages=messages, max_tokens=1, return_token_ids=True)
        return answer["prompt_token_ids"]

    assert prompt([{"type": "text", "text": "{}"}]) == prompt("{}")


PATCH = """\
start: begin hunk+ end
begin: "*** Begin" LF
end: "*** End" LF?
hunk: "@@ " /[a-z]{1,4}/ LF line~1..2
line: ("+" | "-" | " ") /[^\\n]{0,5}/ LF
LF: /\\n/
"""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("syntax", "definition", "pattern"),
    [
        ("lark", 'start: /a+/ "!"', "a+!"),
        ("regex", "(add|sub) [0-9]{1,3}", "(add|sub) [0-9]{1,3}"),
        ("lark", PATCH, r"\*\*\* Begin\n(@@ [a-z]{1,4}\n([-+ ][^\n]{0,5}\n){1,2})+\*\*\* End\n?"),
    ],
    ids=["lark", "regex", "patch"],
)
def test_e8_the_input_of_a_custom_tool_follows_its_grammar(client, stream, syntax, definition, pattern):
    tool = {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    for seed in range(8):
        answer = client.responses.create(
            model="tiny",
            input="q",
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=300,
            stream=stream,
            temperature=1.2,
            extra_body={"seed": seed, **THINK_OFF},
        )
        if stream:
            events = list(answer)
            answer = events[-1].response
            deltas = "".join(event.delta for event in events if event.type == "response.custom_tool_call_input.delta")
        if answer.status == "completed":
            break
    (called,) = answer.output
    assert (called.type, called.name) == ("custom_tool_call", "p")
    assert re.fullmatch(pattern, called.input)
    assert not stream or deltas == called.input


@pytest.mark.parametrize(
    ("syntax", "definition", "place"),
    [
        ("lark", "start: missing", "tools[1].format.definition 1:8"),
        ("lark", 'start: "a" start | "b"', "tools[1].format.definition"),
        ("lark", "no grammar", "tools[1].format.definition"),
        ("regex", "a(", "tools[1].format.definition offset 1"),
    ],
    ids=["undefined", "recursive", "not lark", "regex"],
)
def test_e8_a_grammar_that_cannot_hold_is_refused_with_its_place(client, syntax, definition, place):
    tool = {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="tiny", input="q", tools=[FUNCTION, tool])
    assert refused.value.param == place


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "ping"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]},
    ],
    ids=["required", "named", "allowed"],
)
def test_e9_the_tool_choices_of_responses_hold(api, choice):
    tools = [FUNCTION, {**FUNCTION, "name": "pong"}]
    answer = api("/v1/responses", input="q", tools=tools, tool_choice=choice, **ONE_CALL)
    (called,) = answer["output"]
    assert (called["type"], called["arguments"]) == ("function_call", "{}")
    assert called["name"] in (("ping", "pong") if choice == "required" else ("ping",))
