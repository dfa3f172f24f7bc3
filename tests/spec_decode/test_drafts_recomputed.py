"""The engine's drafts against a full recompute in plain torch, and greedy outputs with each proposer.

Weights are random: the drafts of the tiny checkpoints are habits of the language, whatever the target's states are, so
a drafter that reads wrong states would go unnoticed. As a control, the recompute from wrong states has to disagree.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from infernix_plugin.model_executor.tiny import make_random_model, make_tiny_draft, noise
from tests.oracles.draft_models import Dflash, Mtp, Target
from tests.parity.checkpoints import Bounds

pytestmark = pytest.mark.engine

PROMPTS = [
    "<|im_start|>user\nTell me about the river.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n",
]
TIE = 0.15
"""Logits of drafts that are nearer than this are equal in bfloat16: dozens of sums lie behind each."""

SHARPER = {"o_proj": 5, "q_norm": 4, "codebook": 3}
"""What a draft's weights are multiplied with, so that it matters which states of the target it attends to, and which
draft was chosen before."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random") / "model"
    make_random_model(folder)
    return folder


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    def draft(kind):
        folder = tmp_path_factory.mktemp(kind)
        make_tiny_draft(folder, kind)
        drawn = noise.tensors(json.loads((folder / "config.json").read_text()), seed=1)
        weights = {name: torch.from_numpy(value).to(torch.bfloat16) for name, value in drawn.items()}
        for name in weights:
            weights[name] *= next((factor for part, factor in SHARPER.items() if part in name), 1)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return draft


@pytest.fixture(scope="module")
def prompts(model):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [tokenizer.encode(prompt).ids for prompt in PROMPTS]


@pytest.fixture(scope="module")
def run(tmp_path_factory, prompts):
    folder = tmp_path_factory.mktemp("traces")

    def run(model, speculation, temperatures=(0.0,)):
        """Return a trace for each temperature."""
        options = {"seed": 11, "max_tokens": 24, "ignore_eos": True}
        batches = [
            [
                {"prompt": {"prompt_token_ids": prompt}, "options": options | {"temperature": temperature}}
                for prompt in prompts
            ]
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
def target(model):
    return Target(model)


class LateTarget(Target):
    """A negative control: every position has the states of the one before, as with a cache that is off by one."""

    def states(self, text):
        return tuple(torch.cat([states[:1], states[:-1]]) for states in super().states(text))


@pytest.fixture(scope="module")
def late_target(model):
    return LateTarget(model)


def is_greedy(target, prompts, result):
    """Tell whether every token is the target's best one or tied with it."""
    behind = []
    for prompt, tokens in zip(prompts, result["tokens"], strict=True):
        logits = (target.states(prompt + tokens)[-1] @ target.head.T)[len(prompt) - 1 : -1]
        behind.append(logits.amax(1) - logits.gather(1, torch.tensor(tokens)[:, None])[:, 0])
    behind = torch.cat(behind)
    return float(behind.max()) < Bounds().tie and float((behind == 0).float().mean()) > 0.9


def proposals_of(result):
    assert len(result["proposals"]) > 20
    return result["proposals"]


def are_best_guesses(oracle, proposals):
    """Tell whether each draft is the recomputed best token, or now and then one that bfloat16 cannot tell from it."""
    gaps = []
    for proposal in proposals:
        logits = oracle.logits(proposal["text"], proposal["drafts"])
        drafts = torch.tensor(proposal["drafts"])
        gaps.append(logits.amax(1) - logits.gather(1, drafts.unsqueeze(1)).squeeze(1))
    gaps = torch.cat(gaps)
    return float(gaps.max()) < TIE and float((gaps == 0).float().mean()) > 0.9


def test_mtp(run, model, prompts, target, late_target):
    (result,) = run(model, {"method": "mtp", "num_speculative_tokens": 3})
    assert is_greedy(target, prompts, result)
    assert are_best_guesses(Mtp(target), proposals_of(result))
    assert not are_best_guesses(Mtp(late_target), result["proposals"])


def test_mtp_with_sections_of_m_rope(run, model, prompts, target, tmp_path):
    """The multimodal checkpoints' configuration: for text the rows of positions are equal, so nothing may change."""
    sectioned = tmp_path / "sectioned"
    shutil.copytree(model, sectioned)
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"] |= {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
    (sectioned / "config.json").write_text(json.dumps(config))
    (result,) = run(sectioned, {"method": "mtp", "num_speculative_tokens": 3})
    assert is_greedy(target, prompts, result)
    assert are_best_guesses(Mtp(target), proposals_of(result))


def test_dflash(run, model, prompts, target, late_target, draft):
    folder = draft("dflash")
    (result,) = run(model, {"method": "dflash", "model": str(folder), "num_speculative_tokens": 3})
    assert is_greedy(target, prompts, result)
    assert are_best_guesses(Dflash(target, folder), proposals_of(result))
    assert not are_best_guesses(Dflash(late_target, folder), result["proposals"])


def test_dflash2(run, model, prompts, target, draft):
    """A greedy walk, and a sampled one: candidates, the walk's q, that each draft is a candidate, and the seed."""
    folder = draft("dflash2")
    oracle = Dflash(target, folder)
    speculation = {"method": "dflash", "model": str(folder), "num_speculative_tokens": 3}
    sampled = speculation | {"draft_sample_method": "probabilistic"}
    greedy, result, again = run(model, sampled, temperatures=(0.0, 0.8, 0.8))
    assert is_greedy(target, prompts, greedy)
    assert result["tokens"] == again["tokens"]
    distances, without_the_walk = [], []
    for proposal in proposals_of(result):
        candidates, drafts = proposal["candidates"], torch.tensor(proposal["drafts"])
        assert candidates.shape == (3, 16)
        assert (candidates == drafts.unsqueeze(1)).any(1).all()
        logits = oracle.logits(proposal["text"], proposal["drafts"])
        sixteenth = logits.topk(16).values[:, -1:]
        assert bool((logits.gather(1, candidates) > sixteenth - TIE).all()), "candidates are the best sixteen"
        for drafts_before, found in ((proposal["drafts"], distances), ([proposal["text"][-1]] * 3, without_the_walk)):
            expected = (oracle.scores(proposal["text"], candidates, drafts_before) / 0.8).softmax(1)
            found += ((expected - proposal["q"]).abs().sum(1) / 2).tolist()
    assert max(distances) < 0.1, "total variation, of a walk in bfloat16"
    assert sum(distances) / len(distances) < 0.02
    assert sum(without_the_walk) / len(without_the_walk) > 0.1, "each draft depends on the one before"
