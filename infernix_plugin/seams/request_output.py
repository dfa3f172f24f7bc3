"""The API process's outputs: take our record out again, and turn a failure into the client's error."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.v1.engine.output_processor"
_RECORD = "infernix_record"
"""Attribute of vLLM's ``RequestState``: the record of the request, once it arrived."""
_CUT = "infernix_cut"
"""Attribute of vLLM's ``OutputProcessor``: what stop strings ended, and the engine core will call aborted."""


def _known_as(request_id: str, state: Any) -> tuple[str, int]:
    """Return the client's name of a request and the index of the output; of an aborted one, the engine's name."""
    if state is None:
        return request_id, 0
    whole = state.parent_req or state
    return whole.external_req_id, state.request_index


def _replace_process_outputs(original: Any) -> Any:
    from dataclasses import replace

    from vllm.v1.engine import FinishReason

    from infernix_plugin.observation.settle import Ended, settle
    from infernix_plugin.structured_output.record import detach

    @functools.wraps(original)
    def process_outputs(self: Any, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        failed_parents: list[Any] = []
        ended: list[Ended] = []
        running: dict[str, Ended] = {}
        cut: set[str] = self.__dict__.setdefault(_CUT, set())
        for output in engine_core_outputs:
            output.kv_transfer_params, record, figures = detach(output.kv_transfer_params)
            if record is None:
                continue
            state = self.request_states.get(output.request_id)
            if "kind" in record:
                name, index = _known_as(output.request_id, state)
                known = Ended(name, index, output.finish_reason, record, figures)
                if output.finish_reason is None:
                    running[output.request_id] = known
                elif output.request_id in cut:
                    cut.remove(output.request_id)
                else:
                    ended.append(known)
            if state is None:
                continue  # it was aborted
            setattr(state, _RECORD, record)
            if "error" in record and state.parent_req is not None and state.queue is not None:
                failed_parents.append(state.parent_req)
        processed = original(self, engine_core_outputs, *args, **kwargs)
        for name in processed.reqs_to_abort:  # a stop string was found, of which the engine core knows nothing
            if name in running:
                cut.add(name)
                ended.append(replace(running[name], finish_reason=FinishReason.STOP))
        for parent in failed_parents:
            # The client has its error; the other outputs it asked for would be generated for nobody.
            processed.reqs_to_abort.extend(self.abort_requests(list(parent.child_requests), internal=True))
        for each in ended:
            settle(each, count=self.log_stats)
        return processed

    return process_outputs


def _replace_make_request_output(original: Any) -> Any:
    from infernix_plugin.structured_output.record import error_from

    @functools.wraps(original)
    def make_request_output(self: Any, *args: Any, **kwargs: Any) -> Any:
        record = getattr(self, _RECORD, None)
        if record is not None and "error" in record and self.queue is not None:
            from infernix_plugin.entrypoints.refusals import failure

            self.queue.put(failure(error_from(record["error"])))
            return None
        return original(self, *args, **kwargs)

    return make_request_output


def _replace_new_completion_output(original: Any) -> Any:
    @functools.wraps(original)
    def _new_completion_output(self: Any, token_ids: Any, finish_reason: Any, *args: Any, **kwargs: Any) -> Any:
        completion = original(self, token_ids, finish_reason, *args, **kwargs)
        record = getattr(self, _RECORD, None)
        if record is not None and finish_reason is not None:
            completion.constraint = record
        return completion

    return _new_completion_output


PROCESS_OUTPUTS = Seam(
    module=_MODULE,
    attribute="OutputProcessor.process_outputs",
    reason="The record must leave kv_transfer_params before anything reads them as KV parameters.",
    replace=_replace_process_outputs,
    parameters=("self", "engine_core_outputs", "engine_core_timestamp", "iteration_stats", "weight_version"),
)

MAKE_REQUEST_OUTPUT = Seam(
    module=_MODULE,
    attribute="RequestState.make_request_output",
    reason="A failed request reaches the client as a bare internal error; it gets our status and message instead.",
    replace=_replace_make_request_output,
    parameters=(
        "self",
        "new_token_ids",
        "pooling_output",
        "finish_reason",
        "stop_reason",
        "kv_transfer_params",
        "ec_transfer_params",
        "error",
    ),
)

NEW_COMPLETION_OUTPUT = Seam(
    module=_MODULE,
    attribute="RequestState._new_completion_output",
    reason="The record is the attribute `constraint` of a finished completion.",
    replace=_replace_new_completion_output,
    parameters=("self", "token_ids", "finish_reason", "stop_reason"),
)
