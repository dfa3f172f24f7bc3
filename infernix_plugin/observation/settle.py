"""What happens once for each constrained output that ended, whichever way."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from infernix_plugin import settings
from infernix_plugin.errors import bounded
from infernix_plugin.observation.metrics import metrics
from infernix_plugin.observation.outcome import kind_label, outcome_of
from infernix_plugin.structured_output.record import EngineFigures, Record

logger = logging.getLogger(__name__)

LINE = "Constrained request ended: "
"""How the log line begins; one JSON object follows."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One output that ended.

    Attributes:
        request_id: the name by which the client knows the request.
        index: of the output among those of its request.
        finish_reason: vLLM's.
        record: the observation.
        figures: what the engine core held then.
    """

    request_id: str
    index: int
    finish_reason: Any
    record: Record
    figures: EngineFigures | None


def settle(ended: Ended, *, count: bool) -> None:
    """Count the output if ``count`` is true, and write the log line. Nothing of the constraint's text is in either."""
    outcome = outcome_of(ended.record, ended.finish_reason)
    if count:  # before the line is written: whoever has read it finds the output counted
        metrics().count(ended.record, outcome, ended.figures)
    if settings.current().log_requests:
        logger.info("%s%s", LINE, json.dumps(_line(ended, outcome)))


def _line(ended: Ended, outcome: str) -> dict[str, Any]:
    observed = {name: value for name, value in ended.record.items() if name not in ("kind", "error")}
    line = {
        "request_id": bounded(ended.request_id),
        "index": ended.index,
        "kind": kind_label(ended.record),
        "outcome": outcome,
        **observed,
    }
    if "error" in ended.record:
        line["error"] = ended.record["error"]["type"]  # its message may quote the constraint
    return line
