"""Engines one after the other in one process: ``python -m tests.parity.engine_series JOB OUT``.

``JOB`` is a JSON file: a list of engines, each with ``model``, ``prompts`` (token ids) and the fields of
``modes.Engine``. ``OUT`` gets, for each of them, the outputs of every round, counters, and the names of the parameters,
or what vLLM says when it refuses to start. Engines in processes of their own come first, because vLLM remembers what
the environment says once an engine core has started; engines with n-grams last.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.engine.engine_process import ENVIRONMENT
from tests.parity.checkpoints import Checkpoint
from tests.parity.modes import DRAFTS, TOKENS, Engine, prompts_of

COUNTS = {
    "full": lambda rng: DRAFTS,
    "short": lambda rng: 1,
    "ragged": lambda rng: rng.randrange(DRAFTS + 1),
}
"""How many drafts a row of an oracle has."""
CORRUPTED = 0.25
INTERRUPTED = (10, 20, 30, 40)
"""Steps before which all requests are preempted."""
DRAFTED, ACCEPTED, PREEMPTIONS = COUNTERS = (
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:num_preemptions",
)


def run_series(work: Sequence[tuple[Checkpoint, Engine]], folder: Path) -> list[dict[str, Any]]:
    """Run the engines in a process of their own and return what ``OUT`` gets, in their order."""
    jobs = [
        {"model": str(checkpoint.model), "prompts": prompts_of(checkpoint.model)}
        | asdict(engine)
        | {"options": {**checkpoint.options, **engine.options}}
        for checkpoint, engine in work
    ]
    job, out = folder / "job.json", folder / "out.json"
    job.write_text(json.dumps(jobs))
    with (folder / "log.txt").open("w") as log:
        command = [sys.executable, "-m", "tests.parity.engine_series", str(job), str(out)]
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, (folder / "log.txt").read_text()[-3000:]
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


class Oracle:
    """Drafts what the engines before said next, a quarter of the tokens replaced by others."""

    def __init__(self, answers: list[list[int]], count: str, vocabulary: int) -> None:
        self._answers, self._count, self._vocabulary = answers, COUNTS[count], vocabulary
        self._rng = random.Random(count)

    def propose(
        self, drafts: int, sampled: Any, num_tokens: Any, token_ids: Any, slot_mappings: Any = None
    ) -> list[list[int]]:
        return [
            self._continuation(token_ids[row, : num_tokens[row]].tolist()) if len(new) else []
            for row, new in enumerate(sampled)
        ]

    def _continuation(self, text: list[int]) -> list[int]:
        for answer in self._answers:
            if answer[: len(text)] == text:
                drafts = answer[len(text) : len(text) + self._count(self._rng)]
                return [self._perhaps_another(token) for token in drafts]
        return []

    def _perhaps_another(self, token: int) -> int:
        if self._rng.random() >= CORRUPTED:
            return token
        return (token + self._rng.randrange(1, self._vocabulary)) % self._vocabulary


def states_not_rolled_back() -> Any:
    """States go on from the last draft, as if all of them had been accepted."""
    from dataclasses import replace

    import torch
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention

    from infernix_plugin.model_executor.models.flash_next.rolling_window import RollingWindow

    forward, of = gdn_attention._spec_forward, RollingWindow.of.__func__

    def careless(layer: Any, metadata: Any, *args: Any) -> Any:
        rows = metadata.num_spec_decodes
        accepted = metadata.num_accepted_tokens.clone()
        accepted[:rows] = accepted[:rows].clamp(min=2)
        return forward(layer, replace(metadata, num_accepted_tokens=accepted), *args)

    def window(cls: Any, starts: Any, slots: Any, offsets: Any, fresh: Any, *, back: int) -> Any:
        return of(cls, starts, slots, torch.full_like(offsets, -1), fresh, back=back)

    both = ExitStack()
    both.enter_context(patch.object(gdn_attention, "_spec_forward", careless))
    both.enter_context(patch.object(RollingWindow, "of", classmethod(window)))
    return both


def states_not_copied() -> Any:
    """A request that enters another block starts from whatever state stands there."""
    from infernix_plugin.seams.cpu_faults.align_state_copy import State

    return patch.object(State, "copy", lambda *args: None)


FAULTS = {"rollback": states_not_rolled_back, "borders": states_not_copied}


@contextmanager
def preempting(scheduler: Any) -> Iterator[None]:
    """Take all blocks from all running requests before some of the steps."""
    schedule, steps = scheduler.schedule, itertools.count()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(steps) in INTERRUPTED:
            scheduler.reset_prefix_cache(reset_running_requests=True)
        return schedule(*args, **kwargs)

    scheduler.schedule = interrupted
    try:
        yield
    finally:
        scheduler.schedule = schedule


@contextmanager
def chunks(scheduler: Any, tokens: int) -> Iterator[None]:
    """Let a step have fewer tokens."""
    before, scheduler.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens, tokens
    try:
        yield
    finally:
        scheduler.max_num_scheduled_tokens = before


def run(job: Mapping[str, Any], answers: list[list[int]]) -> dict[str, Any]:
    """Run one engine; ``answers``: texts with what was said before, which grows."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(job["processes"]))
    os.environ["VLLM_DISABLE_COMPILE_CACHE"] = "1"
    from vllm import LLM

    options = {"enforce_eager": True, "disable_log_stats": False, "max_model_len": 2048, "max_num_seqs": 4}
    try:
        engine = LLM(job["model"], **options | job["options"])
    except Exception as error:
        return {"refused": str(error)}
    core = None if job["processes"] else engine.llm_engine.engine_core.engine_core
    runner = None if core is None else core.model_executor.driver_worker.worker.model_runner
    rounds, faults = [], ExitStack()
    for part in job["rounds"]:
        if part["broken"]:
            faults.enter_context(FAULTS[part["broken"]]())
        if part["oracle"]:
            vocabulary = runner.model_config.get_vocab_size()
            runner.drafter.propose = Oracle(answers, part["oracle"], vocabulary).propose
        if not part["warm"]:
            engine.reset_prefix_cache()
        with (
            preempting(core.scheduler) if part["preempted"] else nullcontext(),
            chunks(core.scheduler, part["chunk"]) if part["chunk"] else nullcontext(),
        ):
            rounds.append(_generate(engine, job["prompts"], alone=part["alone"]))
        answers += [prompt + tokens for prompt, tokens in zip(job["prompts"], rounds[-1]["tokens"], strict=True)]
    parameters = {}
    if runner is not None:
        parameters["target"] = [name for name, _ in runner.model.named_parameters()]
        drafter = getattr(getattr(runner, "drafter", None), "model", None)
        if drafter is not None:
            parameters["drafter"] = [name for name, _ in drafter.named_parameters()]
    faults.close()
    engine.llm_engine.engine_core.shutdown()
    return {"rounds": rounds, "parameters": parameters}


def _generate(engine: Any, prompts: list[list[int]], *, alone: bool) -> dict[str, Any]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=1)
    batches = [[prompt] for prompt in prompts] if alone else [prompts]
    before = _counters(engine)
    outputs = [
        output
        for batch in batches
        for output in engine.generate([{"prompt_token_ids": ids} for ids in batch], sampling, use_tqdm=False)
    ]
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "logprobs": [
            [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)]
            for one in (output.outputs[0] for output in outputs)
        ],
        "cached": [output.num_cached_tokens for output in outputs],
        "counters": {name: value - before[name] for name, value in _counters(engine).items()},
    }


def _counters(engine: Any) -> dict[str, int]:
    values = dict.fromkeys(COUNTERS, 0)
    for metric in engine.get_metrics():
        if metric.name in values:
            values[metric.name] += metric.value
    return values


def main(job: Path, out: Path) -> None:
    """Run all engines of a job."""
    os.environ |= {**ENVIRONMENT, "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn"}
    answers: dict[str, list[list[int]]] = {}
    results = [run(one, answers.setdefault(one["model"], [])) for one in json.loads(job.read_text())]
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
