"""Engines one after the other in one process: ``python -m tests.models.engine_series JOB OUT``.

``JOB`` is a JSON file: a list of runs, each with ``model``, engine ``options``, ``tokens`` and ``rounds``. A round
is a list of prompts (token ids), generated greedily, with ``plan``, how the drafts of an n-gram engine are replaced by
drafts that know the answer. Such an engine comes last: vLLM's start fails where numba, which it imports, is there.
``OUT`` gets, for each run, the outputs of every round, counters, and the names of the parameters.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.engine.engine_process import ENVIRONMENT

DRAFTS = 3
PREEMPTED = "preempted"
"""A plan of ragged rows in which all requests lose their blocks, and the cache its content, three times."""
LENGTHS = {
    "full": lambda rng: DRAFTS,
    "short": lambda rng: 1,
    "ragged": lambda rng: rng.randrange(DRAFTS + 1),
    PREEMPTED: lambda rng: rng.randrange(DRAFTS + 1),
}
CARELESS = "careless"
"""A plan that goes on with the drafts of the one before, and breaks what they need."""
CORRUPTED = 0.25
COUNTERS = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens", "vllm:num_preemptions")


class Oracle:
    """Drafts what the engines before said next, a quarter of the tokens replaced by others."""

    def __init__(self, answers: list[list[int]], plan: str, vocabulary: int) -> None:
        self._answers, self._length, self._vocabulary = answers, LENGTHS[plan], vocabulary
        self._rng = random.Random(plan)

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
                drafts = answer[len(text) : len(text) + self._length(self._rng)]
                return [self._perhaps_another(token) for token in drafts]
        return []

    def _perhaps_another(self, token: int) -> int:
        if self._rng.random() >= CORRUPTED:
            return token
        return (token + self._rng.randrange(1, self._vocabulary)) % self._vocabulary


def forget_what_was_rejected() -> None:
    """The negative control: states go on from the last draft, as if all of them had been accepted."""
    from dataclasses import replace

    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention

    forward = gdn_attention._spec_forward

    def careless(layer: Any, metadata: Any, *args: Any) -> Any:
        rows = metadata.num_spec_decodes
        accepted = metadata.num_accepted_tokens.clone()
        accepted[:rows] = accepted[:rows].clamp(min=2)
        return forward(layer, replace(metadata, num_accepted_tokens=accepted), *args)

    gdn_attention._spec_forward = careless


@contextmanager
def preempting(scheduler: Any) -> Iterator[None]:
    """Take all blocks from all running requests before some of the steps."""
    schedule, steps = scheduler.schedule, itertools.count()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(steps) in (15, 40, 65):
            scheduler.reset_prefix_cache(reset_running_requests=True)
        return schedule(*args, **kwargs)

    scheduler.schedule = interrupted
    try:
        yield
    finally:
        scheduler.schedule = schedule


def run(job: dict[str, Any], answers: list[list[int]]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    engine = LLM(job["model"], enforce_eager=True, disable_log_stats=False, max_model_len=512, **job["options"])
    core = engine.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    sampling = SamplingParams(temperature=0, max_tokens=job["tokens"], ignore_eos=True, logprobs=1)
    rounds = []
    for part in job["rounds"]:
        if part["plan"] == CARELESS:
            forget_what_was_rejected()
        elif part["plan"] is not None:
            runner.drafter.propose = Oracle(answers, part["plan"], runner.model_config.get_vocab_size()).propose
        before = _counters(engine)
        with preempting(core.scheduler) if part["plan"] == PREEMPTED else nullcontext():
            outputs = engine.generate([{"prompt_token_ids": ids} for ids in part["prompts"]], sampling, use_tqdm=False)
        rounds.append(
            {
                "tokens": [list(output.outputs[0].token_ids) for output in outputs],
                "logprobs": [
                    [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)]
                    for one in (output.outputs[0] for output in outputs)
                ],
                "cached": [output.num_cached_tokens for output in outputs],
                "counters": {name: value - before[name] for name, value in _counters(engine).items()},
            }
        )
    parameters = {"target": [name for name, _ in runner.model.named_parameters()]}
    drafter = getattr(getattr(runner, "drafter", None), "model", None)
    if drafter is not None:
        parameters["drafter"] = [name for name, _ in drafter.named_parameters()]
    engine.llm_engine.engine_core.shutdown()
    return {"rounds": rounds, "parameters": parameters}


def _counters(engine: Any) -> dict[str, int]:
    values = dict.fromkeys(COUNTERS, 0)
    for metric in engine.get_metrics():
        if metric.name in values:
            values[metric.name] += metric.value
    return values


def main(job: Path, out: Path) -> None:
    os.environ |= {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    results: list[dict[str, Any]] = []
    answers: list[list[int]] = []
    for one in json.loads(job.read_text()):
        results.append(run(one, answers))
        for asked, answered in zip(one["rounds"], results[-1]["rounds"], strict=True):
            texts = zip(asked["prompts"], answered["tokens"], strict=True)
            answers += [prompt + tokens for prompt, tokens in texts]
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
