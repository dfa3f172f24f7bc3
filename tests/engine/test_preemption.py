"""A request that is preempted in the middle of its constraint goes on where it was, and leaves nothing when it ends."""

import gc
from collections import Counter

import pytest
from tokenizers import Tokenizer

from tests.engine.engine_process import EngineProcess, compile_at_once
from tests.engine.proposers import DRAFTS, SAMPLED
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine

BLOCKS = 29
"""One too few for four prompts, each just short of a block of the cache, to grow into their second ones."""


@pytest.fixture(scope="module")
def engine(tiny_model):
    """Sampled drafts whose q must survive the preemption, beside drafts of the grammar and copies of the prompt."""
    engine = EngineProcess(
        str(tiny_model),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        speculative_config={"method": "mtp", "num_speculative_tokens": DRAFTS} | SAMPLED,
        additional_config={"infernix": {"grammar_drafts": True, "ngram_copies": True}},
        num_gpu_blocks_override=BLOCKS,
        disable_log_stats=False,
    )
    engine.call(compile_at_once)  # preempted is who is there with all the others
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def words(tiny_model):
    return Tokenizer.from_file(str(tiny_model / "tokenizer.json")).encode("river tree " * 400).ids


def request(prompt, kind, seed, **options):
    language = LANGUAGES[kind]
    return {
        "prompt": {"prompt_token_ids": prompt},
        "structured": {language.field: language.value},
        "options": {"temperature": 1.0, "seed": seed, "max_tokens": 350, **options},
    }


def generated(engine, requests, kind):
    """Run the requests, check that some were preempted, and judge every output."""
    before = engine.counter("vllm:num_preemptions")
    outputs = engine.generate(requests)
    assert engine.counter("vllm:num_preemptions") > before
    completions = [completion for output in outputs for completion in output]
    for completion in completions:
        LANGUAGES[kind].check(completion["text"], completion["finish_reason"])
        record = completion["constraint"]
        assert record["terminated"] == (completion["finish_reason"] == "stop")
        assert record["mask_positions"] >= len(completion["token_ids"])
    return completions


def test_preempted_requests_stay_in_their_language(engine, words):
    completions = generated(engine, [request(words[: 622 + n], "json_schema", n) for n in range(4)], "json_schema")
    assert sum(completion["constraint"]["illegal_drafts"] for completion in completions)


def test_preempted_outputs_of_one_request_stay_in_its_language(engine, words):
    completions = generated(engine, [request(words[:624], "json_schema", 7, n=4)], "json_schema")
    assert len({tuple(completion["token_ids"]) for completion in completions}) == 4


# In the engine's process: objects are counted, not bytes, which depend on the allocator and on kernels of oneDNN.


def kept(llm):
    """What is alive of this package and of torch, by type, but for what constraints have in common."""
    gc.collect()
    types = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
    shared = ("infernix_plugin.matching.memo", "infernix_plugin.grammar")
    mine = {name: count for name, count in types.items() if name.startswith(("infernix_plugin", "torch.Tensor"))}
    return {name: count for name, count in mine.items() if not name.startswith(shared)}


def test_nothing_of_requests_that_ended_stays(engine, words):
    def alive_after(count):
        engine.generate([request(words[: 20 + n], "choice", n) for n in range(count)])
        # The worker hears of an end with the step that follows it: leave the same, single request to every count.
        engine.generate([{"prompt": {"prompt_token_ids": words[:20]}, "options": {"max_tokens": 1}}])
        return engine.call(kept)

    alive_after(4)
    few = alive_after(4)
    assert few["infernix_plugin.spec_decode.worker.RunnerState"] == 1
    assert alive_after(60) == few
