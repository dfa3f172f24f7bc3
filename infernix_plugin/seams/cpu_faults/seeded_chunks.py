"""Random streams of seeded requests whose prompt takes several steps, on the CPU.

Reason: the V1 runner draws a token for every request of a step, also where the step ends no prompt. It throws such a
token away and winds the request's generator back by its offset. A CPU generator has no offset, so the engine dies. What
was drawn could not be wound back that way either, so nothing is: while a step samples, such requests have no generator.

Fits: vLLM 0.32 and 0.33, CPU platform. Worker process. Used by the seam of ``GPUModelRunner.sample_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def untouched_streams(runner: Any) -> Iterator[None]:
    """Keep the generators of a ``GPUModelRunner``'s requests with unfinished prompts out of the step that samples."""
    batch = runner.input_batch
    unfinished = runner.discard_request_mask.np[: batch.num_reqs].nonzero()[0].tolist()
    streams = {index: batch.generators.pop(index) for index in unfinished if index in batch.generators}
    try:
        yield
    finally:
        batch.generators.update(streams)
