"""Random tools and policies, walked through the masks: every call parses, validates and round-trips.

``INFERNIX_TOOL_SETS=2000`` walks that many sets instead of the few that fit into every run.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import jinja2
import jsonschema

from infernix_plugin.framing.phases import CONTENT
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.model_executor.tiny.chat_template import CHAT_TEMPLATE
from tests.framing.calling import (
    CONTROL,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    read,
    session_of,
    text_of,
    tokens_of,
    walk,
)

SETS = int(os.environ.get("INFERNIX_TOOL_SETS", "80"))
NAMES = ["city", "n", "a b", "é", "x-1", "q.r", "</p", "日本", "__", "Type"]


def value_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["text", "short", "pattern", "words", "integer", "range", "number", "flag", "const", "either"]
    if depth < 2:
        kinds += ["list", "object"]
    match rng.choice(kinds if depth == 0 else [kind for kind in kinds if kind != "either"]):
        case "text":
            return {"type": "string"}
        case "short":
            return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 6)}
        case "pattern":
            return {"type": "string", "pattern": rng.choice(["^[a-z]{1,4}$", "^\\d+-\\d$", "x"])}
        case "words":
            return {"enum": rng.sample(["red", "line\nbreak", "", "null", "</parameter>", 'q"\\'], 3)}
        case "integer":
            return {"type": "integer"}
        case "range":
            return {"type": "integer", "minimum": -3, "maximum": rng.randint(0, 40)}
        case "number":
            return {"type": "number", "minimum": 0, "exclusiveMaximum": 2.5}
        case "flag":
            return {"type": rng.choice(["boolean", "null"])}
        case "const":
            return {"const": rng.choice([1, -2.5, True, None, "fixed", [1, {"a": "b"}]])}
        case "either":
            return {"anyOf": [{"enum": ["auto", "off"]}, {"type": rng.choice(["integer", "null", "boolean"])}]}
        case "list":
            return {"type": "array", "items": value_schema(rng, depth + 1), "maxItems": rng.randint(0, 3)}
    return object_schema(rng, depth + 1)


def object_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 3))
    return {
        "type": "object",
        "properties": {name: value_schema(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.6],
        "additionalProperties": False,
    }


def tool_set(rng: random.Random) -> tuple[Tool, ...]:
    names = rng.sample(["get", "get_all", "f", "tool-x", "ns.f", "été"], rng.randint(1, 3))
    return tuple(
        Tool(name, rng.choice([None, *[json.dumps(object_schema(rng))] * 4]), strict=rng.random() < 0.7)
        for name in names
    )


def policy(rng: random.Random, tools: tuple[Tool, ...]) -> ToolContract:
    allowed = frozenset(tool.name for tool in tools if rng.random() < 0.7) if rng.random() < 0.3 else None
    choice = rng.choice([CallChoice.REQUIRED, CallChoice.REQUIRED, CallChoice.AUTO])
    if allowed is not None and not allowed:
        choice = CallChoice.NONE
    return ToolContract(tools, choice, allowed, parallel=rng.random() < 0.6)


def rendered(calls: list[tuple[str, dict[str, Any]]]) -> str:
    """The calls as the chat template writes them in a later turn."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["items"] = lambda value: list(value.items())
    turns = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": turns}]
    text = environment.from_string(CHAT_TEMPLATE).render(messages=messages)
    return text[text.index("</think>\n\n") + len("</think>\n\n") :].removesuffix("<|im_end|>\n")


def markers_and_bytes(text: str) -> list[int]:
    ids: list[int] = []
    for part in text.split("<tool_call>")[1:]:
        inner, _, behind = part.rpartition("</tool_call>")
        ids += [CONTROL["<tool_call>"], *inner.encode(), CONTROL["</tool_call>"], *behind.encode()]
    return ids


def test_every_call_parses_validates_and_round_trips():
    finished = calls_seen = round_trips = 0
    for seed in range(SETS):
        rng = random.Random(seed)
        tools = tool_set(rng)
        contract = policy(rng, tools)
        framing = THINKING if rng.random() < 0.3 else CONTENT
        ids = walk(session_of(contract, None, framing), rng, most=300)
        if ids is None:
            continue
        finished += 1
        form = form_of(contract, enforced=True, framing=framing)
        output = read(form, ids)
        assert output == read(form, ids, rng)
        assert all(one.complete for one in output.calls)
        decoded = [(one.name, json.loads(one.arguments)) for one in output.calls]
        for name, arguments in decoded:
            tool = next(tool for tool in tools if tool.name == name)
            assert contract.allowed is None or name in contract.allowed
            if tool.strict:
                jsonschema.validate(arguments, json.loads(tool.parameters or '{"maxProperties": 0}'))
        assert contract.parallel or len(decoded) <= 1
        assert contract.choice is not CallChoice.REQUIRED or decoded
        calls_seen += len(decoded)
        written = [value for _, arguments in decoded for value in arguments.values()]
        # The template writes Python's words, which only the lenient reader takes; and that one takes lines in a string
        # for the form.
        words = any(value is None or isinstance(value, bool | float) for value in written)
        lines = any("<" in str(value) for value in written)
        if decoded and not (words and lines):
            reading = form_of(contract, enforced=lines)
            again = read(reading, [*markers_and_bytes(rendered(decoded)), STOP])
            assert [(one.name, json.loads(one.arguments)) for one in again.complete_calls] == decoded
            round_trips += 1
    assert finished > SETS // 3
    assert calls_seen > finished // 2
    assert round_trips > finished // 3
    print(f"{SETS} tool sets, {finished} finished outputs, {calls_seen} calls, {round_trips} round trips")


def test_a_walk_is_one_tokenisation_of_what_every_other_is_too():
    for seed in range(10):
        rng = random.Random(seed)
        contract = policy(rng, tool_set(rng))
        ids = walk(session_of(contract), rng, most=200)
        if ids is not None and "�" not in text_of(ids) and not any(token in CONTROL.values() for token in ids[:-1]):
            assert is_allowed(session_of(contract), [*tokens_of(text_of(ids[:-1]), rng), STOP])
