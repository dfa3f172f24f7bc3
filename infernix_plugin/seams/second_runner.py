"""The V2 runner, which GPUs use: tell the engine core which constrained requests reached a broken row."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace_apply(original: Any) -> Any:
    from infernix_plugin.logits_processors.gpu_guard import guard_of

    @functools.wraps(original)
    def apply_grammar_bitmask(
        self: Any, logits: Any, input_batch: Any, grammar_req_ids: Any, grammar_bitmask: Any
    ) -> None:
        original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
        guard = guard_of(self)
        if guard is not None:
            guard.masked(logits, input_batch)

    return apply_grammar_bitmask


def _replace_sample(original: Any) -> Any:
    from vllm.distributed.communication_op import tensor_model_parallel_all_gather

    from infernix_plugin.logits_processors.gpu_guard import guarding

    def combine(codes: Any) -> Any:
        return tensor_model_parallel_all_gather(codes.unsqueeze(0), dim=0).sum(0)

    @functools.wraps(original)
    def sample(self: Any, hidden_states: Any, input_batch: Any, grammar_output: Any) -> Any:
        constrained = () if grammar_output is None else grammar_output.structured_output_request_ids
        if not constrained:
            return original(self, hidden_states, input_batch, grammar_output)
        with guarding(self.structured_outputs_worker, self.sampler) as guard:
            result = original(self, hidden_states, input_batch, grammar_output)
        sharded = self.batch_sharder is not None
        guard.conclude(result[0], input_batch, constrained, combine if sharded else None)
        return result

    return sample


def _replace_options(original: Any) -> Any:
    from infernix_plugin.logits_processors.gpu_guard import guard_of

    @functools.wraps(original)
    def apply_sampling_params(self: Any, logits: Any, *args: Any, **kwargs: Any) -> Any:
        processed = original(self, logits, *args, **kwargs)
        guard = guard_of(self)
        if guard is not None:
            guard.processed(processed, unchanged=processed is logits)
        return processed

    return apply_sampling_params


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

OPTIONS = Seam(
    module="vllm.v1.worker.gpu.sample.sampler",
    attribute="Sampler.apply_sampling_params",
    reason="What the options leave of a row passes here, in ordinary steps and in those that verify drafts.",
    replace=_replace_options,
    parameters=(
        "self",
        "logits",
        "expanded_idx_mapping",
        "idx_mapping",
        "idx_mapping_np",
        "pos",
        "input_ids",
        "expanded_local_pos",
        "seq_lens_upper_bound_np",
        "skip_top_k_top_p",
    ),
)

GET_OUTPUT = Seam(
    module="vllm.v1.worker.gpu.async_utils",
    attribute="AsyncOutput.get_output",
    reason="The first point at which the device has finished the step; the engine core reads what it returns.",
    replace=_replace_get_output,
    parameters=("self",),
)
