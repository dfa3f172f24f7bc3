"""A real `vllm serve` of Flash-Next with MTP or copies: reasoning, then a JSON answer or strict calls; all valid."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import httpx
import jsonschema
import pytest

from infernix_plugin.model_executor.tiny import make_tiny_model
from tests.server.protocols import Answer, Ask, Chat
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
TOOL = {"name": "lookup", "parameters": PARAMETERS, "strict": True}
FORMAT = ("json", ANSWER)
KINDS = {
    "schema": Ask(structured=FORMAT, spelled="form"),
    "tool": Ask(tools=(TOOL,), choice="required"),
    "either": Ask(tools=(TOOL,), choice="auto", structured=FORMAT, spelled="form"),
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


def judge(kind, thinking, answer):
    """One answer: reasoning if the model thinks, and then what was asked for, whole and by itself."""
    assert bool(answer.reasoning) == thinking
    assert answer.finish == ("tool_calls" if answer.calls else "stop")
    if answer.calls:
        assert kind != "schema"
        assert answer.content.strip() == ""
    else:
        assert kind != "tool"
        jsonschema.validate(json.loads(answer.content), ANSWER)
    for name, arguments in answer.calls:
        assert name == "lookup"
        jsonschema.validate(json.loads(arguments), PARAMETERS)


def test_everything_is_valid(server) -> None:
    """Sampled at temperature 1, whole and in streams, with a few dozen tokens of reasoning or none."""
    chat = Chat(server.url)
    asked = list(product(KINDS, (True, False), (True, False), range(2)))
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(
            pool.map(lambda one: chat.ask(KINDS[one[0]], thinking=one[1], stream=one[2], seed=one[3]), asked)
        )
    for (kind, thinking, stream, seed), answer in zip(asked, answers, strict=True):
        try:
            judge(kind, thinking, answer)
        except (AssertionError, ValueError, jsonschema.ValidationError) as error:
            raise AssertionError(f"{kind}, thinking {thinking}, stream {stream}, seed {seed}: {answer}") from error
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    accepted = [line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")]
    assert sum(float(line.split()[-1]) for line in accepted) > 0


def judged(kind, thinking, **parts):
    judge(kind, thinking, Answer(**parts))


def test_the_judge_sees_what_is_wrong() -> None:
    good = json.dumps({"label": "positive", "reasons": ["a"]})
    call = ("lookup", json.dumps({"city": "a", "days": 1}))
    judged("schema", True, reasoning="hm", content=good, finish="stop")
    judged("either", False, calls=[call], finish="tool_calls")
    for parts in (
        {"reasoning": "", "content": good},
        {"reasoning": "hm", "content": f"</think>{good}"},
        {"reasoning": "hm", "content": good[:-1]},
        {"reasoning": "hm", "content": "{}"},
        {"reasoning": "hm", "calls": [call]},
        {"reasoning": "hm", "content": good, "finish": "length"},
    ):
        with pytest.raises((AssertionError, ValueError, jsonschema.ValidationError)):
            judged("schema", True, **{"finish": "stop", **parts})
    for wrong in (("other", call[1]), ("lookup", "{}"), ("lookup", call[1][:-1])):
        with pytest.raises((AssertionError, ValueError, jsonschema.ValidationError)):
            judged("tool", False, calls=[wrong], finish="tool_calls")
