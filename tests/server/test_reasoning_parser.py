"""With one of vLLM's reasoning parsers, the content alone is the constrained language. Without vLLM's statistics."""

import json
import re

import openai
import pytest

from benchmarks.server_watch import our_metrics
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
def server(tiny_model, tmp_path_factory):
    arguments = [
        str(tiny_model),
        "--served-model-name=tiny",
        "--max-model-len=2048",
        "--max-num-seqs=8",
        "--enforce-eager",
        "--reasoning-parser=qwen3",
        "--disable-log-stats",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
    ]
    with served(arguments, tmp_path_factory.mktemp("reasoning") / "server.log") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


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


def test_without_statistics_only_the_api_server_counts(server, client):
    def ask(structured):
        message = {"role": "user", "content": "Is it good?"}
        extra = {"structured_outputs": structured}
        return client.chat.completions.create(model="tiny", messages=[message], max_tokens=2, extra_body=extra)

    answer = ask({"choice": ["alone"]})
    assert answer.choices[0].constraint["kind"] == "choice"
    with pytest.raises(openai.BadRequestError):
        ask({"regex": "(a"})
    found = our_metrics(server)
    assert {name for name, _ in found} - {"infernix_prepare_seconds_bucket"} == {
        "infernix_refusals_total",
        "infernix_prepare_seconds_count",
        "infernix_prepare_seconds_sum",
        "infernix_api_cache_bytes",
        "infernix_api_compile_queue",
    }
    assert {dict(labels)["process"] for name, labels in found if name.startswith("infernix_prepare")} == {"api"}
    assert "Constrained request ended: " + json.dumps({"request_id": answer.id})[:-1] in server.log_text()
