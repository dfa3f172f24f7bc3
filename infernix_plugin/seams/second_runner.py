"""The V2 runner, which GPUs use: tell the engine core which constrained requests reached a broken row."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace_apply(original: Any) -> Any:
    from infernix_plugin.logits_processors.gpu_guard import watch

    @functools.wraps(original)
    def apply_grammar_bitmask(
        self: Any, logits: Any, input_batch: Any, grammar_req_ids: Any, grammar_bitmask: Any
    ) -> None:
        original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
        watch(self, logits, grammar_req_ids)

    return apply_grammar_bitmask


def _replace_sample(original: Any) -> Any:
    from infernix_plugin.logits_processors.gpu_guard import conclude

    @functools.wraps(original)
    def sample(self: Any, hidden_states: Any, input_batch: Any, grammar_output: Any) -> Any:
        result = original(self, hidden_states, input_batch, grammar_output)
        if self.batch_sharder is None:  # otherwise each rank has seen its own part of the batch only
            conclude(self.structured_outputs_worker, input_batch, result[0])
        return result

    return sample


def _replace_get_output(original: Any) -> Any:
    from infernix_plugin.logits_processors.gpu_guard import failures_in
    from infernix_plugin.logits_processors.row_failure import mark_failures

    @functools.wraps(original)
    def get_output(self: Any) -> Any:
        output = original(self)
        mark_failures(output, failures_in(self.sampler_output))
        return output

    return get_output


APPLY = Seam(
    module="vllm.v1.worker.gpu.structured_outputs",
    attribute="StructuredOutputsWorker.apply_grammar_bitmask",
    reason="The masked rows pass here, in steps that have constrained requests and in no others.",
    replace=_replace_apply,
    parameters=("self", "logits", "input_batch", "grammar_req_ids", "grammar_bitmask"),
)

SAMPLE = Seam(
    module="vllm.v1.worker.gpu.model_runner",
    attribute="GPUModelRunner.sample",
    reason="It knows how many rows of each request verification reached.",
    replace=_replace_sample,
    parameters=("self", "hidden_states", "input_batch", "grammar_output"),
)

GET_OUTPUT = Seam(
    module="vllm.v1.worker.gpu.async_utils",
    attribute="AsyncOutput.get_output",
    reason="The first point at which the device has finished the step; the engine core reads what it returns.",
    replace=_replace_get_output,
    parameters=("self",),
)
