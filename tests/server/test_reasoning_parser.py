"""With one of vLLM's reasoning parsers, the content alone is the constrained language."""

import json
import re

import openai
import pytest

from tests.serving import served

pytestmark = pytest.mark.server

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
KINDS = {
    "choice": (["good", "bad"], lambda text: text in ("good", "bad")),
    "regex": ("[0-9]{4}-[0-9]{2}", lambda text: re.fullmatch("[0-9]{4}-[0-9]{2}", text) is not None),
    "json": (SCHEMA, lambda text: text.startswith("{") and isinstance(json.loads(text)["ok"], bool)),
}


@pytest.fixture(scope="module")
def client(tiny_model, tmp_path_factory):
    arguments = [
        str(tiny_model),
        "--served-model-name=tiny",
        "--max-model-len=2048",
        "--max-num-seqs=8",
        "--enforce-eager",
        "--reasoning-parser=qwen3",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
    ]
    with served(arguments, tmp_path_factory.mktemp("reasoning") / "server.log") as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_content_has_no_reasoning_and_no_framing(client, kind, stream):
    constraint, valid = KINDS[kind]
    finished = 0
    for seed in range(8):
        answer = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Is it good?"}],
            max_tokens=600,
            seed=seed,
            temperature=1.0,
            stream=stream,
            extra_body={"structured_outputs": {kind: constraint}},
        )
        content, finish = collected(answer) if stream else whole(answer)
        assert "</think>" not in content
        if finish == "stop":
            finished += 1
            assert valid(content), content
        else:
            assert finish == "length"
    assert finished


def whole(answer):
    choice = answer.choices[0]
    return choice.message.content or "", choice.finish_reason


def collected(answer):
    content, finish = "", None
    for chunk in answer:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return content, finish
