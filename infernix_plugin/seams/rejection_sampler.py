"""The V1 runner on the CPU: our rejection sampler, the q that it needs, and the guard of the ordinary sampler."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.cpu_faults.seeded_chunks import untouched_streams
from infernix_plugin.seams.seam import Seam, on_cpu

_MODULE = "vllm.v1.worker.gpu_model_runner"


def _replace_sampler(original: Any) -> Any:
    from infernix_plugin.logits_processors.guard import GuardedSampler

    return GuardedSampler


def _replace_rejection_sampler(original: Any) -> Any:
    from infernix_plugin.spec_decode.sampler import ExactRejectionSampler

    return ExactRejectionSampler


def _replace_sample_tokens(original: Any) -> Any:
    from infernix_plugin.spec_decode.worker import state_of

    @functools.wraps(original)
    def sample_tokens(self: Any, grammar_output: Any) -> Any:
        executed = self.execute_model_state
        if executed is None:
            return original(self, grammar_output)
        state = state_of(self)
        state.begin(executed.scheduler_output, grammar_output)
        with untouched_streams(self):
            output = original(self, grammar_output)
        state.end(self, output)
        return output

    return sample_tokens


def _replace_sample(original: Any) -> Any:
    from infernix_plugin.spec_decode.worker import state_of

    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        return state_of(self).sample(self, original, logits, spec_decode_metadata)

    return _sample


def _replace_draft_probs(original: Any) -> Any:
    from infernix_plugin.spec_decode.worker import state_of

    @functools.wraps(original)
    def _get_spec_decode_draft_probs(self: Any, spec_decode_metadata: Any) -> Any:
        return state_of(self).proposal(self.input_batch.req_ids, spec_decode_metadata.num_draft_tokens)

    return _get_spec_decode_draft_probs


SAMPLER = Seam(
    module=_MODULE,
    attribute="Sampler",
    reason="It draws from rows of NaN, and from rows where options forbid all that a constraint allows.",
    replace=on_cpu(_replace_sampler),
    parameters=("logprobs_mode", "use_fp64_gumbel"),
    members={"sample": ("self", "logits", "sampling_metadata", "logprobs_mode_override")},
)

REJECTION_SAMPLER = Seam(
    module=_MODULE,
    attribute="RejectionSampler",
    reason="On the CPU it reads uninitialised sampling parameters, and it knows only one kind of q per step.",
    replace=on_cpu(_replace_rejection_sampler),
    parameters=("sampler", "spec_config", "device"),
    members={"forward": ("self", "metadata", "draft_probs", "logits", "sampling_metadata")},
)

SAMPLE_TOKENS = Seam(
    module=_MODULE,
    attribute="GPUModelRunner.sample_tokens",
    reason="q of the drafts and failed rows are kept per request; it winds back generators that cannot be wound back.",
    replace=on_cpu(_replace_sample_tokens),
    parameters=("self", "grammar_output"),
)

SAMPLE = Seam(
    module=_MODULE,
    attribute="GPUModelRunner._sample",
    reason="The samplers have to know which rows belong to constrained requests.",
    replace=on_cpu(_replace_sample),
    parameters=("self", "logits", "spec_decode_metadata"),
)

DRAFT_PROBS = Seam(
    module=_MODULE,
    attribute="GPUModelRunner._get_spec_decode_draft_probs",
    reason="If the q of one request is missing it calls every draft of the batch certain, which biases the output.",
    replace=on_cpu(_replace_draft_probs),
    parameters=("self", "spec_decode_metadata"),
)
