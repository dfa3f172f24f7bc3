"""Speculation with rollback: oracle drafts that are partly wrong, through chunks and preemption, and MTP's own."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.engine_process import EngineProcess
from tests.oracles.flash_next import TIE, MtpReference

pytestmark = pytest.mark.engine

DRAFTS = 3
BLOCKS = 3 * (4 * (DRAFTS + 1) + 1) + 2
"""Room for three requests of one block each, of which one may grow into a second: four groups of recurrent layers have
a block per draft and one more, and one group attends. One block is vLLM's."""

COUNTS = {"full": lambda rng: DRAFTS, "short": lambda rng: 1, "ragged": lambda rng: rng.randrange(DRAFTS + 1)}


@pytest.fixture(scope="module")
def engine(flash_next):
    engine = EngineProcess(
        str(flash_next),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        max_num_batched_tokens=64,  # prompts come in chunks, beside rows of drafts
        num_gpu_blocks_override=BLOCKS,
        speculative_config={"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 3},
        additional_config={"infernix": {"grammar_drafts": False, "ngram_copies": False}},
        disable_log_stats=False,
    )
    yield engine
    engine.close()


def runner_of(llm):
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def propose_nothing(llm):
    runner_of(llm).propose_draft_token_ids = lambda scheduler_output, sampled, *rest: [[] for _ in sampled]


def propose_from(llm, outputs, mode, seed):
    """Draft what was said before, a quarter of it wrong. Which row a request has, and when, does not matter."""
    runner, rng = runner_of(llm), random.Random(seed)

    def drafts_of(row):
        batch = runner.input_batch
        text = batch.token_ids_cpu[row, : int(batch.num_tokens_no_spec[row])].tolist()
        for prompt, output in outputs:
            if len(text) > len(prompt) and text[: len(prompt)] == prompt:
                right = output[len(text) - len(prompt) :][: COUNTS[mode](rng)]
                return [token if rng.random() > 0.25 else token + 1 for token in right]
        return []

    runner.propose_draft_token_ids = lambda scheduler_output, sampled, *rest: [
        drafts_of(row) for row in range(len(sampled))
    ]


def forget_what_was_rejected(llm):
    """Break the windows of the n-gram layer: they go on behind the last draft, accepted or not."""
    from infernix_plugin.model_executor.models.flash_next.rolling_window import RollingWindow

    of = RollingWindow.of.__func__

    def broken(cls, starts, slots, offsets, fresh, *, back):
        return of(cls, starts, slots, torch.full_like(offsets, -1), fresh, back=back)

    RollingWindow.of = classmethod(broken)


def generate(engine, prompts, tokens=48):
    options = {"temperature": 0, "max_tokens": tokens, "logprobs": 5, "ignore_eos": True}
    outputs = engine.generate([{"prompt": {"prompt_token_ids": prompt}, "options": options} for prompt in prompts])
    return [completions[0] for completions in outputs]


@pytest.fixture(scope="module")
def prompts(text):
    return [text[100:190], text[300:333], text[400:520], text[40:47]]


@pytest.fixture(scope="module")
def said(engine, prompts):
    """What is said without drafts."""
    engine.call(propose_nothing)
    return [(prompt, found["token_ids"]) for prompt, found in zip(prompts, generate(engine, prompts), strict=True)]


@pytest.mark.parametrize("mode", COUNTS)
def test_drafts_change_nothing(engine, reference, prompts, said, mode) -> None:
    engine.call(propose_from, said, mode, 1)
    before = engine.counter("vllm:spec_decode_num_accepted_tokens")
    completions = generate(engine, prompts)
    assert engine.counter("vllm:spec_decode_num_accepted_tokens") - before > 20
    for prompt, completion in zip(prompts, completions, strict=True):
        assert reference.agrees(prompt, completion), reference.differences(prompt, completion)


def test_preempted_requests_go_on_where_they_were(engine, reference, text) -> None:
    """Three requests cross the border of their first block of 512 tokens and one block is left."""
    prompts = [text[offset : offset + 490 + offset] for offset in (3, 7, 11)]
    engine.call(propose_nothing)
    said = [(prompt, found["token_ids"]) for prompt, found in zip(prompts, generate(engine, prompts, 40), strict=True)]
    engine.call(propose_from, said, "ragged", 2)
    before = engine.counter("vllm:num_preemptions")
    completions = generate(engine, prompts, 40)
    assert engine.counter("vllm:num_preemptions") > before
    for prompt, completion in zip(prompts, completions, strict=True):
        assert reference.agrees(prompt, completion), reference.differences(prompt, completion)


def test_a_state_that_is_not_rolled_back_is_noticed(engine, reference, prompts, said) -> None:
    """The last test of this engine: it stays broken."""
    engine.call(propose_from, said, "full", 3)
    engine.call(forget_what_was_rejected)
    completions = generate(engine, prompts)
    assert not all(reference.agrees(prompt, found) for prompt, found in zip(prompts, completions, strict=True))


class LateMtpReference(MtpReference):
    """A negative control: every position has the streams of the one before, as with a cache that is off by one."""

    def _layer(self, text, streams):
        return super()._layer(text, torch.cat([streams[:, :1], streams[:, :-1]], dim=1))


def are_best_guesses(oracle, proposals):
    """Tell whether each draft is the recomputed best token, or now and then one that is tied with it."""
    behind = []
    for proposal in proposals:
        logits = oracle.logits(proposal["text"], proposal["drafts"])
        behind.append(logits.amax(1) - logits.gather(1, torch.tensor(proposal["drafts"])[:, None])[:, 0])
    behind = torch.cat(behind)
    assert len(behind) > 10
    return float(behind.max()) <= 2 * TIE and float((behind == 0).float().mean()) > 0.9


@pytest.fixture(scope="module")
def attentive(flash_next, tmp_path_factory):
    """The checkpoint with an MTP layer whose drafts depend on the target's streams more than on the last token."""
    folder = tmp_path_factory.mktemp("attentive") / "model"
    shutil.copytree(flash_next, folder)
    weights = load_file(folder / "model.safetensors")
    weights["mtp.fc_hidden.weight"] *= 8
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_mtp_says_the_same_and_its_drafts_are_those_of_a_recompute(attentive, reference, prompts, tmp_path) -> None:
    job, out = tmp_path / "job.json", tmp_path / "out.pt"
    options = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    requests = [{"prompt": {"prompt_token_ids": prompt}, "options": options} for prompt in prompts]
    speculation = {"method": "mtp", "num_speculative_tokens": DRAFTS}
    job.write_text(json.dumps({"model": str(attentive), "speculation": speculation, "batches": [requests]}))
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.draft_trace", str(job), str(out)],
        capture_output=True, text=True, timeout=500, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = torch.load(out)
    for prompt, output in zip(prompts, result["tokens"], strict=True):
        logits = reference.logits(prompt, output)
        behind = logits.amax(1) - logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert float(behind.max()) <= TIE
    assert sum(map(len, result["tokens"])) > len(result["proposals"]), "no draft was accepted"
    proposals = result["proposals"][::3]
    assert are_best_guesses(MtpReference(reference, attentive), proposals)
    assert not are_best_guesses(LateMtpReference(reference, attentive), proposals)
