"""No token is drawn from a row that holds no distribution: the guard of vLLM's ordinary sampler."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.sampler import Sampler

from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure

_FORBIDDEN = float("-inf")


class GuardedSampler(Sampler):  # type: ignore[misc]
    """vLLM's sampler, which looks at rows before it draws from them.

    Attributes:
        guarded: batch indices to look at in the next step; the caller sets it.
        failures: of the latest step, by batch index. The token of such a row is the placeholder 0.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guarded: Collection[int] = ()
        self.failures: dict[int, RowFailure] = {}

    def sample(self, logits: Tensor, sampling_metadata: Any, logprobs_mode_override: Any = None) -> Any:
        """Draw a token per row of float32[B, V], to which every option but temperature and truncation was applied."""
        self.failures = {}
        if self.guarded:
            self._guard(logits, sampling_metadata)
        return super().sample(logits, sampling_metadata, logprobs_mode_override)

    def _guard(self, logits: Tensor, sampling_metadata: Any) -> None:
        rows = torch.tensor(sorted(self.guarded))
        highest = (logits if len(rows) == len(logits) else logits[rows]).amax(1)  # NaN if there is one
        for request in rows[~highest.isfinite()].tolist():
            row = logits[request]
            self.failures[request] = RowFailure(kind_of_failure(row, sampling_metadata, request), 0)
            row.fill_(_FORBIDDEN)
            row[0] = 0.0


def kind_of_failure(row: Tensor, metadata: Any, request: int) -> FailureKind:
    """Tell why nothing can be drawn from ``row``, float[V] of the request at this index of the batch."""
    empty = _may_forbid(metadata, request) and bool((row == _FORBIDDEN).all())
    return FailureKind.NOTHING_LEFT if empty else FailureKind.NON_FINITE


def _may_forbid(metadata: Any, request: int) -> bool:
    """Tell whether options of the request at this batch index can leave nothing of what a constraint allows."""
    mask = metadata.allowed_token_ids_mask
    return (
        request in metadata.bad_words_token_ids
        or (mask is not None and bool(mask[request].any()))
        or any(
            request in getattr(each, "min_toks", ())
            or not all(map(isfinite, getattr(each, "biases", {}).get(request, {}).values()))
            for each in metadata.logitsprocs.non_argmax_invariant
        )
    )
