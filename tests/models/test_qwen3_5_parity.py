"""Qwen3.5, dense and MoE, in vLLM's CPU engine against transformers, in every mode the engine has.

The checkpoints are random, with small pages: blocks of a few dozen tokens, so that prompts and outputs cross several
borders of cached blocks. Each output is judged by transformers, in float32, given the engine's own text: every token
must be its best or tie with it, and the log-probabilities must agree. One process runs an engine for each mode.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from infernix_plugin.model_executor.tiny import make_random_model, make_tiny_draft, noise
from infernix_plugin.model_executor.weights.headers import INDEX
from infernix_plugin.model_executor.weights.inspection import inspect_checkpoint
from infernix_plugin.model_executor.weights.layout import Part
from tests.models.engine_series import CARELESS, DRAFTS, LENGTHS, PREEMPTED

pytestmark = pytest.mark.engine

SMALL_PAGES = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 1, "linear_num_value_heads": 2,
}  # fmt: skip
TOKENS = 60
TIE = 0.06
"""Logits that are nearer than this are equal in bfloat16; the best two are 0.2 apart in the mean."""

FAR = 0.2
"""Largest difference of a log-probability: where two experts tie, one token may be computed by the other one."""

PLAIN = {"enable_prefix_caching": False, "max_num_seqs": 4}
CACHED = {"enable_prefix_caching": True, "block_size": 32, "max_num_batched_tokens": 64, "max_num_seqs": 4}
"""A block holds 64 tokens, not 32, so that a state fits. Prompts are longer than a step: prefill comes in chunks, while
other rows decode."""
NGRAM = {"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 3, "prompt_lookup_min": 2}

SHORT = ("plain", "mtp", "oracle")
"""Modes that always run, for the MoE family, which has every layer of the dense one and more."""
EVERYTHING = bool(os.environ.get("INFERNIX_LONG_TESTS"))
"""Whether the others run as well, and the dense family."""

rng = random.Random(0)
PROMPTS = [[rng.randrange(2000) for _ in range(length)] for length in (150, 97, 40, 130)]


def random_draft(folder, kind):
    """A draft of the tiny sizes but the target's pages, with random weights."""
    make_tiny_draft(folder, kind)
    config = json.loads((folder / "config.json").read_text())
    config |= {name: SMALL_PAGES[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")}
    (folder / "config.json").write_text(json.dumps(config))
    weights = noise.tensors(config, seed=1)
    save_file(
        {name: torch.from_numpy(value).to(torch.bfloat16) for name, value in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return str(folder)


VISION = {
    "depth": 1, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96, "out_hidden_size": 256, "in_channels": 3,
    "num_position_embeddings": 64, "patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2,
    "hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.02, "deepstack_visual_indexes": [],
}  # fmt: skip


def multimodal(model, folder):
    """The same weights as the text half of a multimodal checkpoint, in two files, with a vision tower beside them."""
    shutil.copytree(model, folder)
    text = json.loads((model / "config.json").read_text())
    text["rope_parameters"] |= {"mrope_section": [11, 11, 10], "mrope_interleaved": True}
    kind = text["model_type"].removesuffix("_text")
    config = {
        "architectures": [text.pop("architectures")[0].replace("ForCausalLM", "ForConditionalGeneration")],
        "model_type": kind,
        "dtype": "bfloat16",
        "text_config": text,
        "vision_config": VISION | {"model_type": f"{kind}_vision"},
        "tie_word_embeddings": False,
        **{f"{name}_token_id": i for i, name in enumerate(("image", "video", "vision_start", "vision_end"), 2050)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(model / "model.safetensors")
    for name in [name for name in weights if name.startswith("model.")]:
        weights[name.replace("model.", "model.language_model.", 1)] = weights.pop(name)
    for name, value in noise.tensors(config, seed=2).items():
        if name.startswith("model.visual."):
            weights[name] = torch.from_numpy(value).to(torch.bfloat16)
    (folder / "model.safetensors").unlink()
    mapped = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(mapped.values()):
        save_file({name: weights[name] for name in mapped if mapped[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": mapped}))
    return str(folder)


def modes(folder):
    """Options and plans of each engine."""
    drafts = {kind: random_draft(folder / kind, kind) for kind in ("dflash", "dflash2")}
    speculation = {
        "mtp": {"method": "mtp", "num_speculative_tokens": DRAFTS},
        **{
            kind: {"method": "dflash", "model": draft, "num_speculative_tokens": DRAFTS}
            for kind, draft in drafts.items()
        },
    }
    cached = {mode: (CACHED | {"speculative_config": config}, [None, None]) for mode, config in speculation.items()}
    found = {"plain": (PLAIN, [None]), "cached": (CACHED, [None, None]), **cached}
    whole = {"language_model_only": True, "speculative_config": speculation["mtp"]}
    found["multimodal"] = (CACHED | whole, [None])
    found["oracle"] = (CACHED | {"speculative_config": NGRAM}, [*LENGTHS, CARELESS])
    return found if EVERYTHING else {mode: found[mode] for mode in SHORT}


class Series:
    """The results of every mode, and transformers' opinion of any text."""

    def __init__(self, family, folder):
        self.model = folder / "model"
        make_random_model(self.model, family=family, changes=SMALL_PAGES)
        self._plans, jobs = {}, []
        for mode, (options, plans) in modes(folder).items():
            self._plans[mode] = plans
            rounds = [{"prompts": PROMPTS, "plan": plan} for plan in plans]
            model = multimodal(self.model, folder / mode) if mode == "multimodal" else self.model
            jobs.append({"model": str(model), "options": options, "tokens": TOKENS, "rounds": rounds})
        job, out = folder / "job.json", folder / "out.json"
        job.write_text(json.dumps(jobs))
        done = subprocess.run(
            [sys.executable, "-m", "tests.models.engine_series", str(job), str(out)],
            capture_output=True, text=True, timeout=500, env=os.environ, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        self.results = dict(zip(self._plans, json.loads(out.read_text()), strict=True))
        self._reference = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32).eval()

    def round(self, mode, index=0):
        if mode not in self.results:
            pytest.skip("this mode takes minutes of engine time: INFERNIX_LONG_TESTS=1")
        return self.results[mode]["rounds"][index]

    def judge(self, part):
        """Return how far each token is behind the best one, and how far its log-probability is off; float32[n]."""
        behind, off = [], []
        for prompt, tokens, logprobs in zip(PROMPTS, part["tokens"], part["logprobs"], strict=True):
            with torch.no_grad():
                logits = self._reference(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
            chosen = torch.tensor(tokens)[:, None]
            behind.append(logits.amax(1) - logits.gather(1, chosen)[:, 0])
            off.append((logits.log_softmax(1).gather(1, chosen)[:, 0] - torch.tensor(logprobs)).abs())
        return torch.cat(behind), torch.cat(off)

    def agree(self, part):
        behind, off = self.judge(part)
        assert behind.max() < TIE
        assert (behind == 0).float().mean() > 0.95
        assert off.mean() <= 0.005
        assert off.max() < FAR


@pytest.fixture(scope="module", params=["qwen3.5", "qwen3.5-moe"] if EVERYTHING else ["qwen3.5-moe"])
def series(request, tmp_path_factory):
    return Series(request.param, tmp_path_factory.mktemp(request.param))


def test_batched(series):
    series.agree(series.round("plain"))


@pytest.mark.parametrize("mode", ["cached", "mtp", "dflash", "dflash2"])
def test_cold_and_cached_in_chunks(series, mode):
    """The second time long prompts come from the cache, with the states at a border; drafters hold a block back."""
    for index in (0, 1):
        series.agree(series.round(mode, index))
    cold, warm = series.round(mode, 0), series.round(mode, 1)
    assert not any(cold["cached"])
    assert all(count >= 64 for prompt, count in zip(PROMPTS, warm["cached"], strict=True) if len(prompt) > 100)
    if mode != "cached":
        assert warm["counters"]["vllm:spec_decode_num_draft_tokens"] > 100


@pytest.mark.parametrize("index", range(len(LENGTHS)), ids=list(LENGTHS))
def test_drafts_that_are_partly_right(series, index):
    """Rows of every length, with rejected drafts among accepted ones, beside chunks of prompts and after preemption."""
    part = series.round("oracle", index)
    series.agree(part)
    drafted, accepted = (part["counters"][f"vllm:spec_decode_num_{what}_tokens"] for what in ("draft", "accepted"))
    assert 0.4 * drafted < accepted < 0.9 * drafted


def test_text_half_of_a_multimodal_checkpoint(series):
    """Other names, two files, M-RoPE sections, a vision tower that is left out; the same model and MTP head."""
    series.agree(series.round("multimodal"))
    assert inspect_checkpoint(series.model.parent / "multimodal").complete


def test_requests_were_preempted(series):
    counts = [part["counters"]["vllm:num_preemptions"] for part in series.results["oracle"]["rounds"]]
    assert counts[list(LENGTHS).index(PREEMPTED)] >= 4


def test_states_that_are_not_rolled_back_are_noticed(series):
    """The negative control: with the state after a rejected draft, the outputs are not those of the model."""
    behind, off = series.judge(series.round("oracle", len(LENGTHS)))
    assert behind.max() > 5 * TIE
    assert off.mean() > 0.05


def test_tensors_go_where_the_table_says(series):
    """vLLM's own parameters, of the target and of its drafter, are those that ``inspect-checkpoint`` names."""
    fits = inspect_checkpoint(series.model).fits
    target = {slot.into for slot, _ in fits if slot.part == Part.TEXT}
    assert set(series.results["plain"]["parameters"]["target"]) == target
    shared = {"lm_head.weight", "model.embed_tokens.weight", "model.mask_embedding"}
    mtp = {slot.into for slot, _ in fits if slot.part == Part.MTP}
    assert set(series.results["mtp"]["parameters"]["drafter"]) - shared == mtp
    for kind in {"dflash", "dflash2"} & set(series.results):
        draft = {slot.into for slot, _ in inspect_checkpoint(series.model.parent / kind).fits}
        assert set(series.results[kind]["parameters"]["drafter"]) - shared == draft
