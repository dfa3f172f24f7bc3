"""A megabyte in any place of a request gives an answer of a few kilobytes, and no line of the log quotes it."""

import json

import httpx
import pytest

pytestmark = pytest.mark.server

MOST = 4096
"""Bytes of a whole answer: an error, or what a request of at most five tokens gives."""
MARK = "Zq\x1b[31m\r\nERROR forged "
"""What would be seen, or would pass for a line of its own, in a log or on a terminal."""
BIG = (MARK * 60_000)[: 1 << 20]
PLAIN = "Zq" * (1 << 19)


def nested(key, depth=3):
    inner = {key: 1}
    for _ in range(depth):
        inner = {"properties": {key: inner}}
    return inner


def structured(**value):
    return {"structured_outputs": value}


def tools(function, **fields):
    return {"tools": [{"type": "function", "function": function}], **fields}


FIELDS = {
    "a pattern": structured(regex="(" + PLAIN[:60_000]),
    "a long pattern": structured(regex=PLAIN),
    "a group": structured(regex=f"(?<{PLAIN[:60_000]}>a)"),
    "a rule": structured(grammar=f"root ::= {PLAIN[:1000_000]}"),
    "a strange rule": structured(grammar=f"root ::= {BIG[:1000_000]}"),
    "a Lark rule": structured(grammar=f"start: {PLAIN[:1000_000]}"),
    "a choice": structured(choice=[BIG[:20_000] + "\\ud800"]),
    "choices of another type": structured(choice=[[BIG]]),
    "choices that are a text": structured(choice=BIG),
    "a pattern of another type": structured(regex=[BIG]),
    "a schema of another type": structured(json=[BIG]),
    "a keyword": structured(json={BIG: 1}),
    "members": structured(json=nested(BIG[:200_000])),
    "a reference": structured(json={"$ref": "#/" + BIG}),
    "an address": structured(json={"$ref": "http://x/" + BIG}),
    "a type": structured(json={"type": BIG}),
    "a dialect": structured(json={"$schema": BIG}),
    "a schema as text": structured(json="{" + BIG),
    "a tag": structured(structural_tag="{" + BIG),
    "a tag's format": structured(structural_tag=json.dumps({"format": {"type": BIG}})),
    "a tag's name": structured(structural_tag=json.dumps({"infernix" + BIG: 1, "format": {"type": "any_text"}})),
    "an unknown constraint": structured(**{BIG: 1}),
    "two constraints": structured(regex=BIG, grammar=BIG),
    "no constraint": structured(whitespace_pattern=BIG),
    "an ignored option": structured(json={}, whitespace_pattern=BIG),
    "a response format": {"response_format": {"type": BIG}},
    "a format's schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {BIG: 1}}}},
    "a format's name": {"response_format": {"type": "json_schema", "json_schema": {"name": BIG}}},
    "a format's tag": {"response_format": {"type": "structural_tag", "format": {"type": BIG}}},
    "a removed field": {"guided_" + BIG: 1},
    "a guided pattern": {"guided_regex": BIG},
    "guided choices": {"guided_choice": BIG},
    "a reserved argument": {"vllm_xargs": {"infernix" + BIG: 1}},
    "a stop string": {**structured(regex="a"), "stop": [BIG]},
    "bad words": {**structured(regex="a"), "bad_words": [BIG]},
    "stop tokens": {**structured(regex="a"), "stop_token_ids": list(range(1000, 9000))},
    "a bias": {**structured(regex="a"), "logit_bias": {"1" * 1000: 1}},
    "a tool's name": tools({"name": BIG}),
    "a tool's odd name": tools({"name": "a>" + BIG}),
    "a tool's schema": tools({"name": "f", "strict": True, "parameters": {BIG: 1}}),
    "a tool's type": {"tools": [{"type": BIG, "function": {"name": "f"}}]},
    "two tools of a name": {"tools": [{"type": "function", "function": {"name": BIG}}] * 2},
    "a chosen tool": tools({"name": "f"}, tool_choice={"type": "function", "function": {"name": BIG}}),
    "a choice of tools": tools({"name": "f"}, tool_choice=BIG),
    "allowed tools": tools(
        {"name": "f"},
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": BIG}]}},
    ),
}
RESPONSES = {
    name: value for name, value in FIELDS.items() if not any(key in value for key in ("response_format", "tools"))
} | {
    "a format's schema": {"text": {"format": {"type": "json_schema", "name": "x", "schema": {BIG: 1}}}},
    "a format": {"text": {"format": {"type": BIG}}},
    "a tool's name": {"tools": [{"type": "function", "name": BIG, "parameters": {}}]},
    "a tool's schema": {"tools": [{"type": "function", "name": "f", "strict": True, "parameters": {BIG: 1}}]},
    "a custom tool": {
        "tools": [
            {
                "type": "custom",
                "name": "f",
                "format": {"type": "grammar", "syntax": "lark", "definition": f"start: {PLAIN}"},
            }
        ]
    },
    "a chosen tool": {
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": {"type": "function", "name": BIG},
    },
}
UNKNOWN_TO_MESSAGES = {"tools", "stop", "bad_words", "stop_token_ids", "logit_bias"}
MESSAGES = {name: value for name, value in FIELDS.items() if not UNKNOWN_TO_MESSAGES & value.keys()} | {
    "a format's schema": {"output_config": {"format": {"type": "json_schema", "schema": {BIG: 1}}}},
    "a tool's name": {"tools": [{"name": BIG, "input_schema": {"type": "object"}}]},
    "a tool's schema": {"tools": [{"name": "f", "strict": True, "input_schema": {"type": "object", BIG: 1}}]},
    "a chosen tool": {
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": BIG},
    },
}
QUESTION = [{"role": "user", "content": "q"}]
COMPLETIONS = {name: value for name, value in FIELDS.items() if "tools" not in value}
PROTOCOLS = {
    "/v1/chat/completions": ({"messages": QUESTION, "max_tokens": 5}, FIELDS),
    "/v1/completions": ({"prompt": "q", "max_tokens": 5}, COMPLETIONS),
    "/v1/responses": ({"input": "q", "max_output_tokens": 5}, RESPONSES),
    "/v1/messages": ({"messages": QUESTION, "max_tokens": 5}, MESSAGES),
}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, (_, fields) in PROTOCOLS.items() for name in fields])
def test_the_answer_is_small(tiny_server, path, name):
    body, fields = PROTOCOLS[path]
    before = len(tiny_server.log_text())
    answer = httpx.post(
        tiny_server.url + path, json={"model": "tiny", **body, **fields[name]}, timeout=120, trust_env=False
    )
    logged = tiny_server.log_text()[before:]
    assert answer.status_code < 500, answer.text[:1000]
    assert len(answer.content) < MOST
    assert "\x1b[31m" not in logged
    assert "\nERROR forged" not in logged
    assert "ZqZqZq" not in logged
