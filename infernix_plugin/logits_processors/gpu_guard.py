"""Rows without a distribution on vLLM's V2 runner: found on the device, read by the host once the step is over.

Nothing here waits for the device. Tokens are drawn by vLLM's kernels all the same; what they make of such a row is a
token that nobody publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure

_GUARD = "infernix_guard"
"""Attribute of a ``StructuredOutputsWorker`` and of a ``Sampler`` during a step that has constrained requests."""
_FOUND = "infernix_found"
"""Attribute of a ``SamplerOutput``: what to look up when the step is over."""

_NONE = 2**31 - 1

Combine = Callable[[Tensor], Tensor]
"""Adds int32[B] of all ranks up, element by element; every rank gets the sum."""


class StepGuard:
    """The rows of one step, looked at right after their masks and again after the sampling options."""

    def __init__(self) -> None:
        """Start before the masks."""
        self._highest: Tensor | None = None
        self._batch: Any = None
        self._left: list[Tensor] = []
        self._seen = 0

    def masked(self, logits: Tensor, batch: Any) -> None:
        """Look at float[R, V], masked, the rows of this rank's ``InputBatch``."""
        self._highest = logits.amax(1)  # NaN where there is one
        self._batch = batch

    def processed(self, logits: Tensor, *, unchanged: bool) -> None:
        """Look at float[<= R, V] after the sampling options, chunk by chunk; ``unchanged`` if there are none."""
        if self._highest is not None:
            rows = slice(self._seen, self._seen + len(logits))
            self._left.append(self._highest[rows] if unchanged else logits.amax(1))
            self._seen = rows.stop

    def conclude(self, output: Any, batch: Any, constrained: Collection[str], combine: Combine | None = None) -> None:
        """Note on the step's output which requests reached a broken row, and start to copy that to the host.

        Args:
            output: vLLM's ``SamplerOutput`` of the whole batch; it gets the note.
            batch: vLLM's ``InputBatch``, the whole batch.
            constrained: ids of the requests that have masks, of the whole batch.
            combine: given where every rank has seen its own part of the batch; then all ranks call it.
        """
        first = self._first(output, batch)
        if combine is not None:
            none = torch.zeros(len(batch.req_ids), dtype=torch.int32, device=output.num_sampled.device)
            first = combine(none if first is None else first + 1) - 1
        if first is not None:
            # The copy stands in the stream before the end of the step, for which the reader waits.
            setattr(output, _FOUND, (first.to("cpu", non_blocking=True), list(batch.req_ids), frozenset(constrained)))

    def _first(self, output: Any, batch: Any) -> Tensor | None:
        """The codes of the whole batch by what this rank has seen, -1 for requests of other ranks."""
        if self._highest is None:
            return None
        own = self._batch
        left = torch.cat(self._left) if self._left else self._highest
        broken = ~left.isfinite()
        empty = (left == float("-inf")) & self._highest.isfinite()
        if own is batch:
            return first_broken(broken, empty, own.cu_num_logits, output.num_sampled)
        place = {name: index for index, name in enumerate(batch.req_ids)}
        places = torch.tensor([place[name] for name in own.req_ids], device=broken.device)
        codes = torch.full((len(batch.req_ids),), -1, dtype=torch.int32, device=broken.device)
        codes[places] = first_broken(broken, empty, own.cu_num_logits, output.num_sampled[places])
        return codes


@contextmanager
def guarding(*watched: Any) -> Iterator[StepGuard]:
    """Guard a step: :func:`guard_of` each of ``watched`` is the guard meanwhile."""
    guard = StepGuard()
    for each in watched:
        setattr(each, _GUARD, guard)
    try:
        yield guard
    finally:
        for each in watched:
            setattr(each, _GUARD, None)


def guard_of(watched: Any) -> StepGuard | None:
    """The guard of the step that ``watched`` is in, if it has one."""
    guard: StepGuard | None = getattr(watched, _GUARD, None)
    return guard


def failures_in(sampler_output: Any) -> dict[str, RowFailure]:
    """Return the constrained requests of a finished step that reached a broken row."""
    found = getattr(sampler_output, _FOUND, None)
    if found is None:
        return {}
    first, names, constrained = found
    kinds = FailureKind.NON_FINITE, FailureKind.NOTHING_LEFT
    return {
        name: RowFailure(kinds[code & 1], code >> 1)
        for name, code in zip(names, first.tolist(), strict=False)
        if code >= 0 and name in constrained
    }


def first_broken(broken: Tensor, empty: Tensor, bounds: Tensor, sampled: Tensor) -> Tensor:
    """Return int32[B]: twice the number of the request's tokens before its first broken row, -1 if none is reached.

    One more than that if the row is empty: sampling options left nothing of what its mask allows.

    Args:
        broken: bool[R].
        empty: bool[R], only broken rows can be.
        bounds: int[B + 1], the rows of request ``i`` are those from ``bounds[i]`` to ``bounds[i + 1]``.
        sampled: int[B], how many tokens the request got: row ``j`` of its rows gave token ``j``.
    """
    batch = len(bounds) - 1
    request = torch.repeat_interleave(
        torch.arange(batch, device=broken.device), bounds[1:] - bounds[:-1], output_size=len(broken)
    )
    code = 2 * (torch.arange(len(broken), device=broken.device) - bounds[request]) + empty
    code = torch.where(broken, code, _NONE).to(torch.int32)
    first = torch.full((batch,), _NONE, dtype=torch.int32, device=broken.device)
    first.scatter_reduce_(0, request, code, "amin")
    return torch.where(first // 2 < sampled, first, -1)
