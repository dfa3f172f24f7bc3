"""The engine without speculation: parity with transformers, batched, in chunks, and out of the prefix cache."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from tests.engine.engine_process import EngineProcess
from tests.oracles.flash_next import TIE, Reference

pytestmark = pytest.mark.engine

CHUNK = 512
"""Tokens in a step at most: a block of the cache, which has room for a recurrent state."""


@pytest.fixture(scope="module")
def as_released(flash_next, tmp_path_factory):
    """The same weights as the text half of a multimodal checkpoint in two files, its experts one by one."""
    folder = tmp_path_factory.mktemp("models") / "as-released"
    shutil.copytree(flash_next, folder)
    text = json.loads((folder / "config.json").read_text())
    nested = {"architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp", "text_config": text}
    (folder / "config.json").write_text(json.dumps(nested | {"vision_config": {"depth": 1}, "dtype": "bfloat16"}))
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
        block, stacked, kind = name.rpartition(".experts.")
        if not stacked:
            tensors[name] = tensor
            continue
        for expert, part in enumerate(tensor):
            pieces = {"gate_proj": part.chunk(2)[0], "up_proj": part.chunk(2)[1]} if "gate" in kind else {kind: part}
            tensors |= {f"{block}.experts.{expert}.{piece}.weight": value.clone() for piece, value in pieces.items()}
    (folder / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in files if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


@pytest.fixture(scope="module")
def engine(as_released):
    """Engine core in a process of its own."""
    engine = EngineProcess(
        str(as_released),
        max_model_len=2048,
        max_num_batched_tokens=CHUNK,
        enable_prefix_caching=True,
        disable_log_stats=False,
    )
    yield engine
    engine.close()


def generate(engine, prompts, tokens):
    options = {"temperature": 0, "max_tokens": tokens, "logprobs": 5, "ignore_eos": True}
    outputs = engine.generate([{"prompt": {"prompt_token_ids": prompt}, "options": options} for prompt in prompts])
    return [completions[0] for completions in outputs]


def test_a_batch_of_unequal_prompts_agrees_with_transformers(engine, reference, text, flash_next):
    """Prompts within the budget of sparse attention and far beyond it; a model that does not select says otherwise."""
    prompts = [text[:5], text[7:38], text[100:190], text[200:580]]
    completions = generate(engine, prompts, 40)
    for prompt, completion in zip(prompts, completions, strict=True):
        assert reference.agrees(prompt, completion), reference.differences(prompt, completion)
    sees_all = Reference(flash_next, indexer_budget=4096)
    for prompt, completion in zip(prompts[2:], completions[2:], strict=True):
        assert not sees_all.agrees(prompt, completion)


def test_chunks_and_cached_prefixes_change_nothing(engine, reference, text):
    prompt = text[600:1900]
    (cold,) = generate(engine, [prompt], 24)
    assert reference.agrees(prompt, cold), reference.differences(prompt, cold)
    before = engine.counter("vllm:prefix_cache_hits")
    cached = generate(engine, [prompt, prompt[:1100]], 24)
    assert engine.counter("vllm:prefix_cache_hits") - before >= 4 * CHUNK
    for length, found in zip((1300, 1100), cached, strict=True):
        assert reference.agrees(prompt[:length], found), reference.differences(prompt[:length], found)


def test_two_compiled_ranks_with_drafts_say_what_one_says(engine, as_released, reference, text, tmp_path):
    """Two tensor parallel ranks, each a process with half of the heads and experts, compiled as vLLM does by default.

    The texts part at ties only.
    """
    prompts = [text[100:190], text[200:580]]
    alone = generate(engine, prompts, 40)
    ranks = EngineProcess(
        str(as_released),
        environment={"VLLM_CACHE_ROOT": str(tmp_path)},
        enforce_eager=False,
        max_model_len=2048,
        max_num_batched_tokens=CHUNK,
        tensor_parallel_size=2,
        speculative_config={"method": "mtp", "num_speculative_tokens": 3},
        disable_log_stats=False,
    )
    try:
        together = generate(ranks, prompts, 40)
        assert ranks.counter("vllm:spec_decode_num_accepted_tokens") > 0
        # One graph of the target and one of the MTP layer for each rank.
        assert len(list(tmp_path.glob("torch_compile_cache/torch_aot_compile/*/rank_*/model"))) == 4
    finally:
        ranks.close()
    for prompt, one, two in zip(prompts, alone, together, strict=True):
        assert reference.agrees(prompt, two), reference.differences(prompt, two)
        pairs = enumerate(zip(one["token_ids"], two["token_ids"], strict=True))
        where = next((index for index, (a, b) in pairs if a != b), None)
        if where is not None:
            logits = reference.logits(prompt, one["token_ids"])[where]
            assert float(logits.max() - logits[two["token_ids"][where]]) <= TIE
