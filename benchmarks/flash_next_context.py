"""How a decode step of Flash-Next grows with the context: ``python -m benchmarks.flash_next_context [--engine]``.

One layer of sparse attention in the released sizes (24 query and 2 key heads of 256, 4 index heads of 128, budget 2048,
blocks of 4), one request, one token a step, pages of random rows; the same layer with a budget that covers everything
is the ratio's other side. ``--engine``: also whole steps of an engine on the tiny checkpoint (budget 32). Processor
time of one thread, medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from infernix_plugin.seams.cpu_faults import install_import_repairs

CONTEXTS = (1024, 2048, 4096, 8192, 16_384)
PAGE = 512
REPEATS = 41


def seconds(run: Callable[[], Any]) -> float:
    """Return the median of some runs, after two that do not count."""
    run(), run()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def layer(budget: int) -> Any:
    """Return one layer of sparse attention in the released sizes, its weights left as they are made."""
    from infernix_plugin.model_executor.models.flash_next.sparse_attention import SparseAttention

    config = SimpleNamespace(
        hidden_size=2560, head_dim=256, num_attention_heads=24, num_key_value_heads=2, attention_bias=False,
        rms_norm_eps=1e-6, indexer_n_heads=4, indexer_head_dim=128, indexer_budget=budget, indexer_compress_ratio=4,
        rope_parameters={"rope_theta": 1e7, "partial_rotary_factor": 0.25},
    )  # fmt: skip
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=config, dtype=torch.bfloat16),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        compilation_config=SimpleNamespace(static_forward_context={}),
    )
    return SparseAttention(vllm_config, "attention").to(torch.bfloat16)


def step_of(length: int, budget: int) -> Any:
    """Return the layout of a step with one token of one request, whose context is ``length`` with it."""
    from infernix_plugin.model_executor.models.flash_next.sparse_pages import SparseStepBuilder

    config = SimpleNamespace(indexer_budget=budget, indexer_compress_ratio=4)
    vllm_config = SimpleNamespace(model_config=SimpleNamespace(hf_text_config=config), num_speculative_tokens=0)
    builder = SparseStepBuilder(SimpleNamespace(block_size=PAGE), [], vllm_config, torch.device("cpu"))
    step = SimpleNamespace(
        num_reqs=1,
        query_start_loc_cpu=torch.tensor([0, 1]),
        seq_lens=torch.tensor([length]),
        slot_mapping=torch.tensor([length - 1]),
        block_table_tensor=torch.arange(-(-length // PAGE), dtype=torch.int32)[None],
    )
    return builder.build(0, step)


def layers() -> list[tuple[int, float, float]]:
    """Measure the layer; return (context, seconds with the budget, seconds without) for each context."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    found = []
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()), torch.inference_mode():
        init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
        initialize_model_parallel()
        width = 2 * 2 * 256 + 128
        rows = torch.randn(max(CONTEXTS), width).to(torch.bfloat16)
        queries, index = torch.randn(1, 24, 256).to(torch.bfloat16), torch.randn(1, 4, 128).to(torch.bfloat16)
        new = torch.randn(1, width).to(torch.bfloat16)
        attentions = {budget: layer(budget) for budget in (2048, 1 << 20)}
        for length in CONTEXTS:

            def run(budget: int, length: int = length) -> None:
                step = step_of(length, budget)
                attentions[budget]._write(rows, new, step)
                attentions[budget]._attend(queries, index, rows, step)

            chosen, everything = (seconds(partial(run, budget)) for budget in attentions)
            found.append((length, chosen, everything))
    return found


def engine() -> list[tuple[int, float]]:
    """Measure whole decode steps on the tiny checkpoint; return (context, seconds per step)."""
    from vllm import LLM, SamplingParams

    from infernix_plugin.model_executor.tiny import make_tiny_model

    found = []
    with tempfile.TemporaryDirectory() as folder:
        make_tiny_model(Path(folder), family="flash-next")
        llm = LLM(
            folder, max_model_len=max(CONTEXTS) + 128, max_num_batched_tokens=2048, max_num_seqs=1,
            enforce_eager=True, enable_prefix_caching=True, seed=0,
        )  # fmt: skip

        def generate(prompt: list[int], count: int) -> float:
            options = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
            start = time.process_time()
            llm.generate([{"prompt_token_ids": prompt}], options, use_tqdm=False)
            return time.process_time() - start

        for length in CONTEXTS:
            prompt = torch.randint(2000, (length - 64,), generator=torch.Generator().manual_seed(length)).tolist()
            generate(prompt, 1)
            spans = [generate(prompt, 33) - generate(prompt, 1) for _ in range(5)]
            found.append((length, statistics.median(spans) / 32))
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="store_true")
    arguments = parser.parse_args()
    install_import_repairs()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine's time is this process's
    torch.set_num_threads(1)
    print("| context | budget 2048, ms | everything, ms | share |\n|---|---|---|---|")
    for length, sparse, dense in layers():
        print(f"| {length:,} | {sparse * 1e3:.2f} | {dense * 1e3:.2f} | {sparse / dense:.2f} |")
    if arguments.engine:
        print("\n| context | step of the tiny model, ms |\n|---|---|")
        for length, step in engine():
            print(f"| {length:,} | {step * 1e3:.1f} |")


if __name__ == "__main__":
    main()
