"""The scheduler's outputs: end requests whose rows failed, and send our record with the last output of a request."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.v1.core.sched.scheduler"


def _is_news(record: logging.LogRecord) -> bool:
    """Tell news from vLLM's line about a refused commit: the manager wrote why, and left no tokens to show."""
    refused = str(record.msg).startswith("Unexpected: grammar rejected tokens")
    return not (refused and isinstance(record.args, tuple) and record.args[:1] == ([],))


def _may_be_cut(request: Any) -> bool:
    """Whether the API process may end the request: it alone looks for stop strings, and has to know the record then."""
    return request is not None and bool(request.sampling_params.stop)


def _outputs_of(aborted: Iterable[Any], figures: Any) -> dict[int, list[Any]]:
    """Return the last outputs of aborted requests by client; where the client is gone, they only bring the record."""
    from vllm.v1.engine import EngineCoreOutput, FinishReason

    from infernix_plugin.structured_output.record import attach

    outputs: dict[int, list[Any]] = defaultdict(list)
    for gone in aborted:
        params = attach(None, gone.record, figures)
        last = EngineCoreOutput(gone.request_id, [], finish_reason=FinishReason.ABORT, kv_transfer_params=params)
        outputs[gone.client].append(last)
    return outputs


def _replace_update(original: Any) -> Any:
    from vllm.v1.engine import EngineCoreOutputs

    from infernix_plugin.logits_processors.row_failure import failures_of
    from infernix_plugin.structured_output.record import attach, error_record

    def watched(scheduler: Any, scheduler_output: Any) -> Iterator[Any]:
        for names in (scheduler_output.num_scheduled_tokens, scheduler.grammar_compile_error_reqs):
            for name in names:
                request = scheduler.requests.get(name)
                if request is not None and request.use_structured_output:
                    yield request

    logging.getLogger(_MODULE).addFilter(_is_news)

    @functools.wraps(original)
    def update_from_output(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
        manager = self.structured_output_manager
        constrained = {request.request_id: request for request in watched(self, scheduler_output)}
        failures = manager.failures
        failures.begin(failures_of(model_runner_output))
        outputs_of_clients = original(self, scheduler_output, model_runner_output)
        if constrained or failures.errors:
            for outputs in outputs_of_clients.values():
                for output in outputs.outputs:
                    if output.finish_reason is None and not _may_be_cut(constrained.get(output.request_id)):
                        continue
                    figures = None
                    if output.request_id in constrained:
                        record = manager.record_of(constrained[output.request_id])
                        figures = manager.figures()
                    elif output.request_id in failures.errors:
                        record = {"error": error_record(failures.errors[output.request_id])}
                    else:
                        continue
                    output.kv_transfer_params = attach(output.kv_transfer_params, record, figures)
        if aborted := manager.aborted.take():
            for client, outputs in _outputs_of(aborted, manager.figures()).items():
                if client in outputs_of_clients:
                    outputs_of_clients[client].outputs.extend(outputs)
                else:
                    outputs_of_clients[client] = EngineCoreOutputs(outputs=outputs)
        return outputs_of_clients

    return update_from_output


def _replace_finish(original: Any) -> Any:
    from vllm.v1.request import RequestStatus

    from infernix_plugin.structured_output.aborted import Aborted

    @functools.wraps(original)
    def finish_requests(self: Any, request_ids: Any, finished_status: Any) -> Any:
        finished = original(self, request_ids, finished_status)
        manager = self.structured_output_manager
        for request in finished:
            if request.use_structured_output:
                if finished_status == RequestStatus.FINISHED_ABORTED:
                    manager.aborted.add(Aborted(request.request_id, request.client_index, manager.record_of(request)))
                manager.give_up(request)
        return finished

    return finish_requests


def _replace_send(original: Any) -> Any:
    from vllm.v1.engine import EngineCoreOutputs

    @functools.wraps(original)
    def _send_abort_outputs(self: Any, aborted_reqs: Any) -> None:
        manager = self.structured_output_manager
        aborted = manager.aborted.take(request.request_id for request in aborted_reqs)
        observed = {gone.request_id for gone in aborted}
        original(self, [request for request in aborted_reqs if request.request_id not in observed])
        for client, outputs in _outputs_of(aborted, manager.figures()).items():
            names = {output.request_id for output in outputs}
            self.output_queue.put_nowait((client, EngineCoreOutputs(outputs=outputs, finished_requests=names)))

    return _send_abort_outputs


UPDATE = Seam(
    module=_MODULE,
    attribute="Scheduler.update_from_output",
    reason="Neither side's outputs have a field for why a request failed; ours rides in kv_transfer_params.",
    replace=_replace_update,
    parameters=("self", "scheduler_output", "model_runner_output"),
)

FINISH = Seam(
    module=_MODULE,
    attribute="Scheduler.finish_requests",
    reason="A request that the client aborts gets no output; its record goes with the next step, which always comes.",
    replace=_replace_finish,
    parameters=("self", "request_ids", "finished_status"),
)

SEND_ABORTED = Seam(
    module="vllm.v1.engine.core",
    attribute="EngineCoreProc._send_abort_outputs",
    reason="A request that the engine core aborts itself, when it pauses or stops, ends with this output and no step.",
    replace=_replace_send,
    parameters=("self", "aborted_reqs"),
)
