"""What a worker on a CPU holds, with vLLM alone and with the plugin, with oneDNN's cache of kernels and without it.

    python -m benchmarks.worker_memory MODEL --seconds 120

MODEL is a checkpoint made by `infernix make-tiny-model`. oneDNN compiles a kernel for every number of rows that matrix
products have, and keeps the latest 1,024; the steps of a server have many numbers of rows. Each line is a process of
its own that runs engine core and worker. Its KV cache is written once before anything is measured: pages that nobody
has touched yet would count as growth. Only what `malloc` has handed out counts, not its fragments.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from tests.engine.engine_process import ENVIRONMENT, SMALL
from tests.engine.vllm_alone import install_repairs_only
from tests.oracles.soak_languages import SOAK_LANGUAGES

MIB = 1 << 20
IN_FLIGHT = 64
WARM_SECONDS = 10.0
PROMPT = "<|im_start|>user\nWrite something: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}


@dataclass(frozen=True)
class Case:
    """An engine and its requests."""

    name: str
    drafts: bool
    plugin: bool


CASES = (
    Case("vLLM alone, free text", drafts=False, plugin=False),
    Case("vLLM with repairs of its CPU backend, MTP, free text", drafts=True, plugin=False),
    Case("the plugin, MTP, constraints", drafts=True, plugin=True),
)
KEPT = ((1024, 32), (0, 32), (0, 1))
"""Kernels that are kept: by oneDNN, and by vLLM for each shape of weights. First the defaults, last the fewest."""
ROWS = (1, 512, 1024, 2048)


class _Malloc(ctypes.Structure):
    """glibc's ``mallinfo2``."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


def held() -> int:
    """Bytes that ``malloc`` has handed out, without large blocks, which are mapped: tensors, the KV cache."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Malloc
    gc.collect()
    return int(libc.mallinfo2().uordblks)


class Worker:
    """One engine in this process, under load."""

    def __init__(self, model: Path, case: Case) -> None:
        from vllm import LLM

        arguments = {**SMALL, "max_num_seqs": IN_FLIGHT, "num_gpu_blocks_override": 600, **(MTP if case.drafts else {})}
        self._engine = LLM(str(model), **arguments).llm_engine
        self._runner = self._engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        self._constrained = case.plugin
        self._source = random.Random(0)
        self._asked = self._in_flight = 0
        self._rows = Counter[int]()
        self._count_rows()
        _touch(self._runner.kv_caches)

    def run(self, seconds: float) -> tuple[int, int, int, int]:
        """Return bytes held and numbers of rows seen, after a moment and at the end."""
        early = self._load(WARM_SECONDS)
        return *early, *self._load(seconds - WARM_SECONDS)

    def tensors(self) -> int:
        """Return how many tensors the garbage collector knows."""
        import torch

        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    def _load(self, seconds: float) -> tuple[int, int]:
        until = perf_counter() + seconds
        while perf_counter() < until:
            while self._in_flight < IN_FLIGHT:
                self._ask()
            self._in_flight -= sum(output.finished for output in self._engine.step())
        return held(), len(self._rows)

    def _ask(self) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        options: dict[str, Any] = {"temperature": self._source.choice((0.7, 1.0, 1.3)), "max_tokens": 200}
        if self._constrained:
            language = self._source.choice(SOAK_LANGUAGES)
            options["structured_outputs"] = StructuredOutputsParams(**{language.field: language.value})
        else:
            options |= {"max_tokens": self._source.choice((5, 20, 40, 80, 200)), "ignore_eos": True}
        params = SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)
        self._engine.add_request(str(self._asked), PROMPT.format(self._source.random()), params)
        self._asked += 1
        self._in_flight += 1

    def _count_rows(self) -> None:
        execute = self._runner.execute_model

        def counted(scheduler_output: Any, *arguments: Any, **more: Any) -> Any:
            self._rows[scheduler_output.total_num_scheduled_tokens] += 1
            return execute(scheduler_output, *arguments, **more)

        self._runner.execute_model = counted


def _touch(caches: Any) -> None:
    import torch

    if isinstance(caches, torch.Tensor):
        torch.tensor([], dtype=torch.uint8).set_(caches.untyped_storage()).fill_(0)
    else:
        for cache in caches:
            _touch(cache)


def _serve(pipe: Any, model: Path, case: Case, own: int, seconds: float) -> None:
    if case.drafts and not case.plugin:
        install_repairs_only()
    _keep_for_each_shape(own)
    worker = Worker(model, case)
    figures = worker.run(seconds)
    pipe.send((*figures, worker.tensors()))


def _keep_for_each_shape(own: int) -> None:
    """Make vLLM keep this many kernels for each shape of weights."""
    from vllm import _custom_ops

    create = _custom_ops.create_onednn_mm
    _custom_ops.create_onednn_mm = lambda weight, _=0: create(weight, own)


def _multiply(pipe: Any, own: int) -> None:
    """Send what is held and resident after products of 1 row, up to 512, up to 1,024, and up to 2,048."""
    import torch
    from vllm import _custom_ops
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    weight = torch.randn(512, 256, dtype=torch.bfloat16)
    product = _custom_ops.create_onednn_mm(weight.t(), own)
    figures, done = [], 0
    for most in ROWS:
        for rows in range(done + 1, most + 1):
            _custom_ops.onednn_mm(product, torch.randn(rows, 256, dtype=torch.bfloat16), None)
        done = most
        figures.append((held(), int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")))
    pipe.send(figures)


def in_process(target: Any, *arguments: Any, capacity: int, plugin: bool) -> Any:
    """Return what ``target``, in a process of its own, sends through the pipe that it gets."""
    os.environ.update({**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = str(capacity)
    os.environ["INFERNIX_DISABLE"] = "0" if plugin else "1"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    answer = ours.recv()
    process.join()
    return answer


def kernels(capacity: int, own: int) -> str:
    """Return a line of the table of matrix products."""
    figures = in_process(_multiply, own, capacity=capacity, plugin=False)
    cells = [f"{handed / MIB:,.0f} MiB, {resident / MIB:,.0f} MiB" for handed, resident in figures]
    return f"| {capacity:,}, {own} | {' | '.join(cells)} |"


def engine(model: Path, case: Case, kept: tuple[int, int], seconds: float) -> str:
    """Return a line of the table of engines."""
    capacity, own = kept
    # The repairs are the plugin's, reduced in the process itself.
    figures = in_process(_serve, model, case, own, seconds, capacity=capacity, plugin=case.drafts)
    early, rows_early, late, rows_late, tensors = figures
    return (
        f"| {case.name} | {capacity:,}, {own} | {rows_early}, {rows_late} "
        f"| {early / MIB:,.0f} MiB, {late / MIB:,.0f} MiB | {tensors} |"
    )


def main(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint.")],
    seconds: Annotated[float, typer.Option(help="For each line.")] = 120.0,
) -> None:
    """Print the tables."""
    print("| kernels kept | " + " | ".join(f"after {rows:,} rows" for rows in ROWS) + " |")
    print("|--:" * (1 + len(ROWS)) + "|")
    for kept in KEPT:
        print(kernels(*kept), flush=True)
    print()
    moments = f"{WARM_SECONDS:.0f} s, {seconds:.0f} s"
    print(f"| engine | kernels kept | numbers of rows after {moments} | held early, at the end | tensors |")
    print("|:--|--:|--:|--:|--:|")
    for case in CASES:
        for kept in KEPT:
            print(engine(model, case, kept, seconds), flush=True)


if __name__ == "__main__":
    typer.run(main)
