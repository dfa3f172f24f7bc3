"""The scheduler's outputs: end requests whose rows failed, and add our record to the last output of a request."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any

from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.v1.core.sched.scheduler"


def _is_news(record: logging.LogRecord) -> bool:
    """Tell news from vLLM's line about a refused commit: the manager wrote why, and left no tokens to show."""
    refused = str(record.msg).startswith("Unexpected: grammar rejected tokens")
    return not (refused and isinstance(record.args, tuple) and record.args[:1] == ([],))


def _replace(original: Any) -> Any:
    from infernix_plugin.logits_processors.row_failure import failures_of
    from infernix_plugin.structured_output.record import attach, error_record

    def watched(scheduler: Any, scheduler_output: Any) -> Iterator[Any]:
        for names in (scheduler_output.num_scheduled_tokens, scheduler.grammar_compile_error_reqs):
            for name in names:
                request = scheduler.requests.get(name)
                if request is not None and request.use_structured_output:
                    yield request

    def record_of(structured: Any) -> dict[str, Any]:
        grammar = structured.grammar
        record: dict[str, Any] = (
            {"error": error_record(grammar)} if isinstance(grammar, Exception) else grammar.record()
        )
        return record

    logging.getLogger(_MODULE).addFilter(_is_news)

    @functools.wraps(original)
    def update_from_output(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
        constrained = {
            request.request_id: request.structured_output_request for request in watched(self, scheduler_output)
        }
        failures = self.structured_output_manager.failures
        failures.begin(failures_of(model_runner_output))
        outputs_of_clients = original(self, scheduler_output, model_runner_output)
        if constrained or failures.errors:
            for outputs in outputs_of_clients.values():
                for output in outputs.outputs:
                    if output.finish_reason is None:
                        continue
                    if output.request_id in constrained:
                        record = record_of(constrained[output.request_id])
                    elif output.request_id in failures.errors:
                        record = {"error": error_record(failures.errors[output.request_id])}
                    else:
                        continue
                    output.kv_transfer_params = attach(output.kv_transfer_params, record)
        return outputs_of_clients

    return update_from_output


SEAM = Seam(
    module=_MODULE,
    attribute="Scheduler.update_from_output",
    reason="Neither side's outputs have a field for why a request failed; ours rides in kv_transfer_params.",
    replace=_replace,
    parameters=("self", "scheduler_output", "model_runner_output"),
)
