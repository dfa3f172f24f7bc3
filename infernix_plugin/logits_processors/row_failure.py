"""Rows from which no token can be drawn: found where tokens are drawn, told to the engine core, per request.

A worker notes them on vLLM's ``ModelRunnerOutput`` by :func:`mark_failures`; the engine core reads them by
:func:`failures_of` and ends each request whose commit reaches the row. What the worker emits in place of a token there,
and behind it, is a placeholder that nobody publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

_FAILURES = "infernix_failures"
"""Attribute of a ``ModelRunnerOutput``: request id -> failure. Absent where nothing failed."""


class FailureKind(Enum):
    """Why no token can be drawn from a row."""

    NON_FINITE = "non_finite"
    """The model produced NaN or infinity, or gave every allowed token the probability zero."""
    NOTHING_LEFT = "nothing_left"
    """Sampling options forbid every token that the constraint allows."""


class RowFailure(NamedTuple):
    """A row that verification reached.

    Attributes:
        kind: why it failed.
        position: how many tokens of the step come before it.
    """

    kind: FailureKind
    position: int


def mark_failures(output: Any, failures: Mapping[str, RowFailure]) -> None:
    """Note failed requests on a ``ModelRunnerOutput``."""
    if failures:
        setattr(output, _FAILURES, dict(failures))


def failures_of(output: Any) -> Mapping[str, RowFailure]:
    """Return the failed requests of a step."""
    failures: Mapping[str, RowFailure] | None = getattr(output, _FAILURES, None)
    return failures or {}
