"""DFlash and DFlash2 drafts in the real engine: constraints hold, drafts are accepted, seeds decide."""

import pytest

from infernix_plugin.model_executor.tiny import make_tiny_draft
from tests.engine.engine_process import EngineProcess
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine

METHODS = {"dflash": {}, "dflash2": {"draft_sample_method": "probabilistic"}}
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
KINDS = ("json_schema", "regex", "choice", "grammar")


@pytest.fixture(scope="module", params=METHODS)
def engine(request, tiny_model, tmp_path_factory):
    draft = tmp_path_factory.mktemp("draft")
    make_tiny_draft(draft, request.param)
    speculation = {"method": "dflash", "model": str(draft), "num_speculative_tokens": 3, **METHODS[request.param]}
    process = EngineProcess(str(tiny_model), speculative_config=speculation, disable_log_stats=False)
    process.method = request.param
    yield process
    process.close()


def request(kind, temperature, seed):
    options = {"temperature": temperature, "seed": seed, "max_tokens": 60}
    if kind is None:
        return {"prompt": PROMPT.format("Tell me about the river."), "options": options}
    language = LANGUAGES[kind]
    return {
        "prompt": PROMPT.format(f"Write {kind}."),
        "structured": {language.field: language.value},
        "options": {**options, "max_tokens": language.max_tokens},
    }


def accepted(engine) -> int:
    return engine.counter("vllm:spec_decode_num_accepted_tokens")


def test_constraints_hold_beside_free_requests(engine) -> None:
    before = accepted(engine)
    drafted = engine.counter("vllm:spec_decode_num_draft_tokens")
    kinds = [*KINDS, None] * 2
    requests = [request(kind, float(number >= len(KINDS)), number) for number, kind in enumerate(kinds)]
    for kind, (completion,) in zip(kinds, engine.generate(requests), strict=True):
        if kind is not None:
            LANGUAGES[kind].check(completion["text"], completion["finish_reason"])
            assert completion["constraint"]["kind"] == kind
    assert engine.counter("vllm:spec_decode_num_draft_tokens") > drafted
    if engine.method == "dflash2":
        assert accepted(engine) > before


def test_the_same_seed_gives_the_same_output(engine) -> None:
    batch = [request(kind, 1.0, seed) for seed in (1, 2) for kind in (None, "json_schema")]
    first, second = ([completion["token_ids"] for (completion,) in engine.generate(batch)] for _ in range(2))
    assert first == second
    assert first[0] != first[2]
