"""The engine's drafts against a full recompute in plain torch, and greedy outputs with and without each proposer."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from infernix_plugin.model_executor.tiny import make_tiny_draft
from tests.oracles.draft_models import Dflash, Mtp, Target

pytestmark = pytest.mark.engine

PROMPTS = [
    "<|im_start|>user\nTell me about the river.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n",
]
TIE = 0.15
"""Logits that are nearer than this are equal in bfloat16: each has 8 bits, and dozens of sums lie behind it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")

    def run(model, speculation, temperatures=(0.0,)):
        """Return a trace for each temperature."""
        options = {"seed": 11, "max_tokens": 24, "ignore_eos": True}
        batches = [
            [{"prompt": prompt, "options": options | {"temperature": temperature}} for prompt in PROMPTS]
            for temperature in temperatures
        ]
        job, out = folder / "job.json", folder / "out.pt"
        job.write_text(json.dumps({"model": str(model), "speculation": speculation, "batches": batches}))
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine.draft_trace", str(job), str(out)],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return torch.load(out)

    return run


@pytest.fixture(scope="module")
def target(tiny_model):
    return Target(tiny_model)


@pytest.fixture(scope="module")
def plain(run, tiny_model):
    return run(tiny_model, None)[0]["tokens"]


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    def draft(kind):
        folder = tmp_path_factory.mktemp(kind)
        make_tiny_draft(folder, kind)
        return folder

    return draft


def proposals_of(result):
    assert len(result["proposals"]) > 20
    return result["proposals"]


def assert_best_guesses(oracle, proposals):
    """Each draft is the recomputed best token, or one that bfloat16 cannot tell from it; most are the former."""
    equal = total = 0
    for proposal in proposals:
        logits = oracle.logits(proposal["text"], proposal["drafts"])
        drafts = torch.tensor(proposal["drafts"])
        gaps = logits.amax(1) - logits.gather(1, drafts.unsqueeze(1)).squeeze(1)
        assert float(gaps.max()) < TIE, (proposal, gaps)
        equal += int((gaps == 0).sum())
        total += len(drafts)
    assert equal > 0.9 * total


def test_mtp(run, tiny_model, target, plain):
    (result,) = run(tiny_model, {"method": "mtp", "num_speculative_tokens": 3})
    assert result["tokens"] == plain
    assert_best_guesses(Mtp(target), proposals_of(result))


def test_mtp_with_sections_of_m_rope(run, tiny_model, target, plain, tmp_path):
    """The multimodal checkpoints' configuration: for text the rows of positions are equal, so nothing may change."""
    model = tmp_path / "sectioned"
    shutil.copytree(tiny_model, model)
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"] |= {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
    (model / "config.json").write_text(json.dumps(config))
    (result,) = run(model, {"method": "mtp", "num_speculative_tokens": 3})
    assert result["tokens"] == plain
    assert_best_guesses(Mtp(target), proposals_of(result))


def test_dflash(run, tiny_model, target, plain, draft):
    folder = draft("dflash")
    (result,) = run(tiny_model, {"method": "dflash", "model": str(folder), "num_speculative_tokens": 3})
    assert result["tokens"] == plain
    assert_best_guesses(Dflash(target, folder), proposals_of(result))


def test_dflash2(run, tiny_model, target, plain, draft):
    """A greedy walk, and a sampled one: candidates, the walk's q, that each draft is a candidate, and the seed."""
    folder = draft("dflash2")
    oracle = Dflash(target, folder)
    speculation = {"method": "dflash", "model": str(folder), "num_speculative_tokens": 3}
    sampled = speculation | {"draft_sample_method": "probabilistic"}
    greedy, result, again = run(tiny_model, sampled, temperatures=(0.0, 0.8, 0.8))
    assert greedy["tokens"] == plain
    assert result["tokens"] == again["tokens"]
    distances = []
    for proposal in proposals_of(result):
        candidates, drafts = proposal["candidates"], torch.tensor(proposal["drafts"])
        assert candidates.shape == (3, 16)
        assert (candidates == drafts.unsqueeze(1)).any(1).all()
        logits = oracle.logits(proposal["text"], proposal["drafts"])
        sixteenth = logits.topk(16).values[:, -1:]
        assert bool((logits.gather(1, candidates) > sixteenth - TIE).all()), "candidates are the best sixteen"
        expected = (oracle.scores(proposal["text"], candidates, proposal["drafts"]) / 0.8).softmax(1)
        distances += ((expected - proposal["q"]).abs().sum(1) / 2).tolist()
    assert max(distances) < 0.1, "total variation, of a walk in bfloat16"
    assert sum(distances) / len(distances) < 0.02
