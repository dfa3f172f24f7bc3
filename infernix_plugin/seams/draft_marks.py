"""The scheduler's plan of a step: say which of its drafts a grammar proposed."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def schedule(self: Any, throttle_prefills: bool = False) -> Any:
        scheduler_output = original(self, throttle_prefills)
        self.structured_output_manager.mark_grammar_drafts(self.requests, scheduler_output)
        return scheduler_output

    return schedule


SEAM = Seam(
    module="vllm.v1.core.sched.scheduler",
    attribute="Scheduler.schedule",
    reason="Drafts that replace sampled ones are verified exactly only if the worker knows that they were not sampled.",
    replace=_replace,
    parameters=("self", "throttle_prefills"),
)
