"""Speed and memory of the model families in vLLM's CPU engine and in transformers, measured in one run.

    python benchmarks/models.py [--family qwen3.5 ...] [--size tiny mid] [--page docs/benchmarks/models.md]

Both sides have the same random checkpoint, the same prompts and the same number of threads, each in a process of its
own that stays up; they are measured in turns, so that whatever else the machine does falls on both. A figure is the
best of the turns: prefill is the time to the first token, decoding the median time between two steps behind it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("vllm", "transformers")
TURNS = 3
BATCH, PROMPT, DECODED = 8, 256, 32
CONTEXTS, CONTEXT_DECODED, CONTEXT_TURNS = (256, 1024, 4096, 16_384), 24, 2
"""Growth with the context, of vLLM: one request, decoding behind prompts of these lengths."""

SIZES: dict[str, dict[str, dict[str, Any] | None]] = {
    "qwen3.5": {
        "tiny": None,
        "mid": {
            "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 2048,
            "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
            "linear_num_key_heads": 6, "linear_num_value_heads": 12,
        },
    },
    "qwen3.5-moe": {
        "tiny": None,
        "mid": {
            "hidden_size": 512, "num_hidden_layers": 12, "num_experts": 16, "num_experts_per_tok": 4,
            "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
            "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        },
    },
    "flash-next": {
        "tiny": None,
        "mid": {
            "hidden_size": 512, "ple_embed_dim": 512, "indexer_budget": 512, "num_experts": 24,
            "num_experts_per_tok": 4, "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
            "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        },
    },
}  # fmt: skip
"""What differs from the tiny model: nothing, or the entries of a configuration of about 100 M parameters."""


INTRODUCTION = """\
# Speed of the models

vLLM's CPU engine with the plugin, and transformers' `generate`, in one run with {threads} thread(s): bfloat16, greedy,
no speculation; {batch} prompts of {prompt} tokens, {decoded} more tokens each. Tokens per second, the best of {turns}
turns: prefill is the time to the first token, decoding the median time between two steps behind it.
"""


# --- one side, in its own process -----------------------------------------------------------------------------------


def prompts(count: int, length: int) -> list[list[int]]:
    """Token ids that are no control tokens; no two prompts begin alike."""
    return [[(7 * row + 13 * place) % 1999 for place in range(length)] for row in range(count)]


class VllmSide:
    """vLLM's engine as it starts by default, compiled; without speculation and without prefix caching."""

    def __init__(self, model: str) -> None:
        from vllm import LLM

        self._engine = LLM(
            model, max_model_len=16_896, max_num_seqs=BATCH, enable_prefix_caching=False, max_num_batched_tokens=2048,
            disable_log_stats=True,
        )  # fmt: skip

    def generate(self, batch: list[list[int]], tokens: int) -> list[float]:
        """Continue every prompt greedily by so many tokens; return when each step of them was there, in seconds."""
        from vllm import SamplingParams

        options = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        engine, times = self._engine.llm_engine, []
        for name, ids in enumerate(batch):
            engine.add_request(str(name), {"prompt_token_ids": ids}, options)
        while engine.has_unfinished_requests():
            if engine.step():
                times.append(time.perf_counter())
        return times

    def parameters(self) -> int:
        """Return how many numbers the model has."""
        runner = self._engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        return sum(parameter.numel() for parameter in runner.model.parameters())


class TransformersSide:
    """transformers' ``generate`` with its own cache, in bfloat16."""

    def __init__(self, model: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from infernix_plugin.seams.cpu_faults import install_import_repairs

        install_import_repairs()
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()

    def generate(self, batch: list[list[int]], tokens: int) -> list[float]:
        """Continue every prompt greedily by so many tokens; return when each step of them was there, in seconds."""
        import torch

        times: list[float] = []

        def seen(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            times.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool)

        ids = torch.tensor(batch)
        with torch.no_grad():
            self._model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens,
                stopping_criteria=[seen],
            )  # fmt: skip
        return times

    def parameters(self) -> int:
        """Return how many numbers the model has."""
        return sum(parameter.numel() for parameter in self._model.parameters())


def _turn(side: VllmSide | TransformersSide, batch: int, length: int, tokens: int) -> dict[str, float]:
    """Return tokens per second of prefill, and of decoding."""
    start = time.perf_counter()
    times = side.generate(prompts(batch, length), 1 + tokens)
    step = statistics.median(later - earlier for earlier, later in itertools.pairwise(times))
    return {"prefill": batch * length / (times[0] - start), "decode": batch / step}


def _slowest_operators(side: VllmSide | TransformersSide) -> list[tuple[str, float]]:
    """Return the three operators that take most of a generation's processor time, with their share."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        side.generate(prompts(BATCH, PROMPT), DECODED)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [(event.key, event.self_cpu_time_total / total) for event in events[:3]]


def serve(name: str, model: str) -> None:
    """Answer the questions on standard input, one JSON document a line, on the standard output we were born with."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = VllmSide(model) if name == "vllm" else TransformersSide(model)
    side.generate(prompts(BATCH, 16), 4)
    for line in sys.stdin:
        question = json.loads(line)
        if question[0] == "turn":
            answer: Any = _turn(side, *question[1:])
        elif question[0] == "operators":
            answer = _slowest_operators(side)
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            answer = {"parameters": side.parameters(), "peak": peak}
        print(json.dumps(answer), file=answers, flush=True)


# --- both sides -----------------------------------------------------------------------------------------------------


@contextmanager
def started(name: str, model: Path, threads: int) -> Iterator[Callable[..., Any]]:
    """Start a side; yield the function that asks it."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    command = [sys.executable, str(Path(__file__).resolve()), "--side", name, str(model)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asking, answering = process.stdin, process.stdout

    def ask(*question: Any) -> Any:
        asking.write(json.dumps(question) + "\n")
        asking.flush()
        answer = answering.readline()
        if not answer:
            raise SystemExit(f"benchmarks/models.py: the {name} side of {model.name} ended; run {' '.join(command)}")
        return json.loads(answer)

    try:
        yield ask
    finally:
        asking.close()
        process.wait(60)


@dataclass(frozen=True)
class Result:
    """Figures of one checkpoint, by side: tokens per second, bytes. ``contexts``: vLLM's milliseconds a token."""

    family: str
    size: str
    parameters: int
    prefill: dict[str, float]
    decode: dict[str, float]
    alone: dict[str, float]
    contexts: list[float]
    peak: dict[str, int]
    operators: list[tuple[str, float]]


def measure(family: str, size: str, directory: Path, threads: int) -> Result:
    """Build the checkpoint and measure both sides in turns."""
    from infernix_plugin.model_executor.tiny import make_random_model, make_tiny_model

    changes = SIZES[family][size]
    if changes is None:
        make_tiny_model(directory, family=family)  # type: ignore[arg-type]
    else:
        make_random_model(directory, family=family, changes=changes)  # type: ignore[arg-type]
    with started("vllm", directory, threads) as vllm, started("transformers", directory, threads) as transformers:
        sides = dict(zip(SIDES, (vllm, transformers), strict=True))

        def best(batch: int, length: int, tokens: int, turns: int) -> dict[str, dict[str, float]]:
            found = [{side: ask("turn", batch, length, tokens) for side, ask in sides.items()} for _ in range(turns)]
            return {
                what: {side: max(turn[side][what] for turn in found) for side in SIDES}
                for what in ("prefill", "decode")
            }

        batched = best(BATCH, PROMPT, DECODED, TURNS)
        alone = best(1, PROMPT, DECODED, TURNS)["decode"]
        grown = [
            max(vllm("turn", 1, length, CONTEXT_DECODED)["decode"] for _ in range(CONTEXT_TURNS)) for length in CONTEXTS
        ]
        facts = {side: ask("facts") for side, ask in sides.items()}
        return Result(
            family=family,
            size=size,
            parameters=facts["transformers"]["parameters"],
            prefill=batched["prefill"],
            decode=batched["decode"],
            alone=alone,
            contexts=[1000 / speed for speed in grown],
            peak={side: facts[side]["peak"] for side in SIDES},
            operators=vllm("operators"),
        )


def page(results: list[Result], threads: int) -> str:
    """Return the figures as a page."""
    lengths = ", ".join(f"{length:,}" for length in CONTEXTS)
    lines = [
        INTRODUCTION.format(threads=threads, batch=BATCH, prompt=PROMPT, decoded=DECODED, turns=TURNS),
        "| checkpoint | parameters | | prefill | decode, batch 8 | decode, batch 1 | peak memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        for side in SIDES:
            row = [f"{one.family}, {one.size}", f"{one.parameters / 1e6:,.1f} M"] if side == SIDES[0] else ["", ""]
            row += [side, *(f"{figure[side]:,.0f}" for figure in (one.prefill, one.decode, one.alone))]
            lines.append(f"| {' | '.join([*row, f'{one.peak[side] / 2**20:,.0f}'])} |")
        ratios = [
            f"**{figure['vllm'] / figure['transformers']:.1f}**" for figure in (one.prefill, one.decode, one.alone)
        ]
        lines.append(f"| | | ratio | {' | '.join(ratios)} | |")
    lines += [
        "",
        "vLLM's memory holds 1 GiB that is set aside for its cache.",
        "",
        f"vLLM's milliseconds for a token behind {lengths} tokens of context, one request:",
        "",
        f"| checkpoint | ms | {CONTEXTS[-1]:,} over {CONTEXTS[0]:,} |",
        "|---|---|---|",
    ]
    for one in results:
        times = ", ".join(f"{value:.1f}" for value in one.contexts)
        lines.append(f"| {one.family}, {one.size} | {times} | {one.contexts[-1] / one.contexts[0]:.2f} |")
    lines += ["", "The three operators of vLLM that take the most of the processor's time:", ""]
    lines += ["| checkpoint | first | second | third |", "|---|---|---|---|"]
    for one in results:
        named = " | ".join(f"`{name}` {share:.0%}" for name, share in one.operators)
        lines.append(f"| {one.family}, {one.size} | {named} |")
    families, sizes = (list(dict.fromkeys(getattr(one, what) for one in results)) for what in ("family", "size"))
    command = f"benchmarks/models.py --family {' '.join(families)} --size {' '.join(sizes)} --threads {threads}"
    return "\n".join([*lines, "", f"`python {command} --page docs/benchmarks/models.md` wrote this page.", ""])


def main() -> None:
    """Measure what the command line asks for and print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--size", nargs="+", choices=("tiny", "mid"), default=["tiny", "mid"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each side; 1 on a busy machine")
    parser.add_argument("--page", type=Path, help="write the table here")
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(*options.side)
        return
    results = []
    for family in options.family:
        for size in (size for size in options.size if size in SIZES[family]):
            with tempfile.TemporaryDirectory() as directory:
                results.append(measure(family, size, Path(directory) / f"{family}-{size}", options.threads))
                print(results[-1], flush=True)
            if options.page:
                options.page.write_text(page(results, options.threads), encoding="utf-8")
    if not options.page:
        print(page(results, options.threads))


if __name__ == "__main__":
    main()
