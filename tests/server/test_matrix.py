"""The matrix: protocol x stream or whole x thinking or not x constraint or tool choice, on one server with MTP.

Real clients send every case. An oracle that shares no code with the plugin judges every answer, cut ones too; a case
that can finish has to finish once. The size is printed at the end of a test run.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.oracles.languages import LANGUAGES
from tests.server.protocols import Answer, Ask, Chat, Completions, Messages, Protocol, Responses

pytestmark = pytest.mark.server

ATTEMPTS = 8
"""Seeds to try until an answer is not cut. Reasoning without a budget may be long."""
LOOKUP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "at": {"type": "array", "items": {"enum": ["am", "pm"]}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = (
    {"name": "lookup", "parameters": LOOKUP, "strict": True},
    {"name": "ping", "parameters": NOTHING, "strict": True},
)
SCHEMAS = {"lookup": LOOKUP, "ping": NOTHING}
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
CONTENT = {kind: Ask((language.field, language.value)) for kind, language in LANGUAGES.items()}
FORMS = {f"form {kind}": Ask(CONTENT[kind].structured, "form") for kind in ("json_schema", "json_object")}
GUIDED = {f"guided {kind}": Ask(CONTENT[kind].structured, "guided") for kind in LANGUAGES if kind != "json_object"}
CALLS = {
    "auto": Ask(tools=TOOLS, choice="auto"),
    "none": Ask(tools=TOOLS, choice="none"),
    "required": Ask(tools=TOOLS, choice="required"),
    "named": Ask(tools=TOOLS, choice="lookup", parallel=False),
    "one": Ask(tools=TOOLS, choice="required", parallel=False),
}
UNION = {"form or calls": Ask(("json", ANSWER), "form", tools=TOOLS, choice="auto")}
ALLOWED = {"allowed": Ask(tools=TOOLS, choice="required", allowed=("ping",))}
ROWS: dict[type[Protocol], dict[str, Ask]] = {
    Chat: CONTENT | FORMS | GUIDED | CALLS | ALLOWED | UNION,
    Completions: CONTENT | FORMS | GUIDED,
    Responses: CONTENT | FORMS | GUIDED | CALLS | ALLOWED | UNION,
    Messages: CONTENT | {"form json_schema": FORMS["form json_schema"]} | GUIDED | CALLS | UNION,
}
CASES = [
    pytest.param(protocol, ask, stream, thinking, id="-".join([protocol.__name__, name, way, mode]))
    for protocol, rows in ROWS.items()
    for name, ask in rows.items()
    for way, stream in (("whole", False), ("stream", True))
    for mode, thinking in (("plain", False), ("thinking", True))
]


@pytest.fixture(scope="module")
def protocols(tiny_server):
    return {protocol: protocol(tiny_server.url) for protocol in ROWS}


@pytest.mark.parametrize(("protocol", "ask", "stream", "thinking"), CASES)
def test_matrix(protocols, protocol, ask, stream, thinking):
    for seed in range(ATTEMPTS):
        answer = protocols[protocol].ask(ask, stream=stream, thinking=thinking, seed=seed)
        judge(answer, ask, thinking=thinking and protocol is not Completions)
        if answer.finish != "length" or _may_go_on(ask):
            return
    pytest.fail(f"each of {ATTEMPTS} answers was cut")


def _may_go_on(ask: Ask) -> bool:
    """Whether the language holds long texts that the tiny model likes: free text, or any JSON object."""
    return ask.choice in ("auto", "none") or (ask.structured is not None and ask.structured[0] == "json_object")


def judge(answer: Answer, ask: Ask, *, thinking: bool) -> None:
    for text in (answer.reasoning, answer.content):
        assert not any(marker in text for marker in ("<think>", "</think>", "<|im_", "<|endoftext|>"))
    cut = answer.finish == "length"
    assert not answer.reasoning or thinking
    if cut and thinking and not answer.content and not answer.calls:
        return  # in the reasoning
    judge_content(answer, ask)
    judge_calls(answer, ask)


def judge_content(answer: Answer, ask: Ask) -> None:
    if ask.structured is None:
        assert ask.choice in ("auto", "none") or not answer.content
        return
    if ask.tools:
        assert not (answer.content and answer.calls)
        assert answer.content or answer.calls or answer.finish == "length"
        if answer.content and answer.finish != "length":
            jsonschema.validate(json.loads(answer.content), ask.structured[1])
        return
    language = next(one for one in LANGUAGES.values() if (one.field, one.value) == ask.structured)
    language.check(answer.content, answer.finish)


def judge_calls(answer: Answer, ask: Ask) -> None:
    names = [name for name, _ in answer.calls]
    assert set(names) <= set(_callable(ask))
    assert ask.parallel or len(names) <= 1
    if answer.finish == "length":
        return
    for name, arguments in answer.calls:
        jsonschema.validate(_decoded(arguments), SCHEMAS[name])
    if ask.choice not in (None, "auto", "none"):
        assert names
    # vLLM's habit in Chat: a named tool finishes with stop.
    named = ask.choice not in (None, "auto", "none", "required")
    assert answer.finish in (("stop", "tool_calls") if named else ("tool_calls",) if names else ("stop",))


def _callable(ask: Ask) -> tuple[str, ...]:
    if not ask.tools or ask.choice == "none":
        return ()
    if ask.allowed is not None:
        return ask.allowed
    return tuple(SCHEMAS) if ask.choice in ("auto", "required") else (ask.choice or "",)


def _decoded(arguments: str) -> Any:
    pairs = json.loads(arguments, object_pairs_hook=list)
    assert len({key for key, _ in pairs}) == len(pairs)
    return json.loads(arguments)
