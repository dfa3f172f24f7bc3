"""A real `vllm serve` of Flash-Next with MTP or copies: reasoning, then a JSON answer or strict calls; all valid."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import jsonschema
import pytest

from infernix_plugin.model_executor.tiny import make_tiny_model
from tests.serving import served

pytestmark = pytest.mark.server

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
ANSWER = {
    "type": "object",
    "properties": {
        "label": {"enum": ["positive", "negative"]},
        "reasons": {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 3},
    },
    "required": ["label", "reasons"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "lookup", "parameters": PARAMETERS, "strict": True}}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER, "strict": True}}
KINDS = {
    "schema": {"response_format": FORMAT},
    "tool": {"tools": TOOLS, "tool_choice": "required"},
    "either": {"tools": TOOLS, "tool_choice": "auto", "response_format": FORMAT},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = tmp_path_factory.mktemp("models") / "flash-next"
    make_tiny_model(model, family="flash-next")
    arguments = [
        str(model),
        "--served-model-name=tiny",
        "--max-model-len=2048",
        "--max-num-seqs=8",
        "--enforce-eager",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
        "--additional-config",
        '{"infernix": {"ngram_copies": true}}',
    ]
    with served(arguments, tmp_path_factory.mktemp("server") / "server.log") as server:
        yield server


def ask(server, kind, seed):
    """Sampled at temperature 1; reasoning of a few dozen tokens at most."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"What is the weather in city {seed}?"}],
        "max_tokens": 600,
        "seed": seed,
        "temperature": 1.0,
        "thinking_token_budget": 30,
        "chat_template_kwargs": {"enable_thinking": True},
        **KINDS[kind],
    }
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_everything_is_valid(server) -> None:
    asked = [(kind, seed) for kind in KINDS for seed in range(4)]
    with ThreadPoolExecutor(len(asked)) as pool:
        choices = list(pool.map(lambda request: ask(server, *request), asked))
    reasoned = 0
    for (kind, _), choice in zip(asked, choices, strict=True):
        message = choice["message"]
        calls = message.get("tool_calls") or []
        reasoned += bool(message.get("reasoning"))
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop"), (kind, choice)
        for call in calls:
            assert call["function"]["name"] == "lookup"
            jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS)
        if not calls:
            assert kind != "tool"
            jsonschema.validate(json.loads(message["content"]), ANSWER)
        elif kind == "schema":
            pytest.fail("a call where there are no tools")
    assert reasoned == len(asked)
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    accepted = [line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")]
    assert sum(float(line.split()[-1]) for line in accepted) > 0
