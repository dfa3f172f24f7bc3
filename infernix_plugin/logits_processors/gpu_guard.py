"""Rows without a distribution on vLLM's V2 runner: found on the device, read by the host once the step is over.

Nothing here waits for the device. Tokens are drawn by vLLM's kernels all the same; what they make of such a row is a
token that nobody publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure

_WATCHED = "infernix_watched"
"""Attribute of a ``StructuredOutputsWorker``: the rows of the step that is being sampled."""
_FOUND = "infernix_found"
"""Attribute of a ``SamplerOutput``: what to look up when the step is over."""

_NONE = 2**31 - 1


def watch(worker: Any, logits: Tensor, constrained: Sequence[str]) -> None:
    """Look at the rows of a step right after its masks were applied.

    Args:
        worker: vLLM's ``StructuredOutputsWorker``.
        logits: float[R, V], masked.
        constrained: ids of the requests that have masks.
    """
    setattr(worker, _WATCHED, (broken_rows(logits), frozenset(constrained)) if constrained else None)


def conclude(worker: Any, batch: Any, sampler_output: Any) -> None:
    """Note on the step's output which requests reached a broken row, and start to copy that to the host.

    Args:
        worker: vLLM's ``StructuredOutputsWorker`` or ``None``.
        batch: vLLM's ``InputBatch``.
        sampler_output: of the whole batch; it gets the note.
    """
    watched = getattr(worker, _WATCHED, None)
    if watched is None:
        return
    setattr(worker, _WATCHED, None)
    broken, constrained = watched
    first = first_broken(broken, batch.cu_num_logits, sampler_output.num_sampled)
    # The copy stands in the stream before the end of the step, for which the reader waits.
    setattr(sampler_output, _FOUND, (first.to("cpu", non_blocking=True), list(batch.req_ids), constrained))


def failures_in(sampler_output: Any) -> dict[str, RowFailure]:
    """Return the constrained requests of a finished step that reached a broken row."""
    found = getattr(sampler_output, _FOUND, None)
    if found is None:
        return {}
    first, names, constrained = found
    return {
        name: RowFailure(FailureKind.NON_FINITE, position)
        for name, position in zip(names, first.tolist(), strict=False)
        if position >= 0 and name in constrained
    }


def broken_rows(logits: Tensor) -> Tensor:
    """Return bool[R]: the largest logit of the row is NaN (as one NaN makes it), or infinite of either sign."""
    return ~logits.amax(1).isfinite()


def first_broken(broken: Tensor, bounds: Tensor, sampled: Tensor) -> Tensor:
    """Return int32[B]: how many tokens of the request's step come before its first broken row, -1 if none is reached.

    Args:
        broken: bool[R].
        bounds: int[B + 1], the rows of request ``i`` are those from ``bounds[i]`` to ``bounds[i + 1]``.
        sampled: int[B], how many tokens the request got: row ``j`` of its rows gave token ``j``.
    """
    batch = len(bounds) - 1
    request = torch.repeat_interleave(
        torch.arange(batch, device=broken.device), bounds[1:] - bounds[:-1], output_size=len(broken)
    )
    position = torch.arange(len(broken), device=broken.device) - bounds[request]
    position = torch.where(broken, position, _NONE).to(torch.int32)
    first = torch.full((batch,), _NONE, dtype=torch.int32, device=broken.device)
    first.scatter_reduce_(0, request, position, "amin")
    return torch.where(first < sampled, first, -1)
