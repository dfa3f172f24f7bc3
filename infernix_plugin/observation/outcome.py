"""How a constrained output ended, and what was constrained: the fixed words of log lines and of metric labels."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from infernix_plugin.errors import ConstraintDeadEnd, ConstraintError, NonFiniteLogits, kind_of_constraint_error
from infernix_plugin.grammar.constraint import ConstraintKind
from infernix_plugin.structured_output import framed_output, structural_tag
from infernix_plugin.structured_output.record import Record

OTHER = "other"
"""A word that is not in its fixed set."""

KINDS = (*(kind.value for kind in ConstraintKind), framed_output.TOOLS, structural_tag.TYPE)


class Outcome(StrEnum):
    """Why an output ended."""

    STOP = "stop"
    """The model ended it where the constraint allows an end, or a stop string cut it: a structural tag may have one."""
    LENGTH = "length"
    ABORT = "abort"
    """The client left, or the engine was paused or stopped."""
    DEAD_END = "dead_end"
    NON_FINITE = "non_finite"
    REFUSED = "refused"
    """The engine core refused the constraint, or gave up on it while the request ran."""
    ERROR = "error"
    """A fault of the server."""


_BY_ERROR: dict[type[Exception], Outcome] = {
    ConstraintDeadEnd: Outcome.DEAD_END,
    NonFiniteLogits: Outcome.NON_FINITE,
    ConstraintError: Outcome.REFUSED,
}
_BY_FINISH_REASON = {"stop": Outcome.STOP, "length": Outcome.LENGTH, "abort": Outcome.ABORT}


def outcome_of(record: Record, finish_reason: Any) -> Outcome:
    """Return the outcome of a finished request; ``finish_reason`` is vLLM's, which says less."""
    if "error" not in record:
        return _BY_FINISH_REASON.get(str(finish_reason), Outcome.ERROR)
    failed = kind_of_constraint_error(record["error"]["type"]) or Exception
    return next((outcome for kind, outcome in _BY_ERROR.items() if issubclass(failed, kind)), Outcome.ERROR)


def kind_label(record: Record) -> str:
    """Return the kind of a record, which comes from another process, as one of :data:`KINDS` or :data:`OTHER`."""
    return record["kind"] if record["kind"] in KINDS else OTHER
