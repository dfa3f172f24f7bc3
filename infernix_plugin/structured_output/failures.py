"""Rows that failed in the worker, in the step that the engine core commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infernix_plugin.errors import ConstraintDeadEnd, InfernixError, NonFiniteLogits
from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure


class StepFailures:
    """The failed rows of one step, and what became of them."""

    def __init__(self) -> None:
        self._rows: Mapping[str, RowFailure] = {}
        self.errors: dict[str, InfernixError] = {}
        """Request id -> why it ended in this step."""

    def begin(self, rows: Mapping[str, RowFailure]) -> None:
        """Start a step whose worker reported ``rows``, by request id."""
        self._rows = rows
        self.errors = {}

    def refuse(self, request: Any, tokens: int) -> InfernixError | None:
        """Return the error of a request that is about to commit ``tokens`` tokens, if they reach its failed row.

        Args:
            request: vLLM's ``Request``, to which the tokens were already added.
            tokens: how many are left of what the worker returned after a stop token or the length limit.
        """
        failed = self._rows.get(request.request_id)
        if failed is None or tokens <= failed.position:
            return None
        error = _explain(failed.kind, request.num_output_tokens - tokens + failed.position)
        self.errors[request.request_id] = error
        return error


def _explain(kind: FailureKind, position: int) -> InfernixError:
    if kind is FailureKind.NOTHING_LEFT:
        return ConstraintDeadEnd(
            f"After {position} output tokens, the sampling options of the request forbid every token that is allowed.",
            hint="Loosen bad_words, allowed_token_ids, min_tokens or logit_bias.",
        )
    return NonFiniteLogits(f"After {position} output tokens, the model produced no finite probabilities.")
