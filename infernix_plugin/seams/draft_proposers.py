"""The proposers of the V1 runner: drafters whose target is text only, DFlash2's candidate head, n-gram copies."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from infernix_plugin.errors import InfernixError
from infernix_plugin.seams.seam import Seam, on_cpu

_CANDIDATE_HEAD = "DFlash candidate-head drafts"
"""What VllmConfig calls DFlash2 and LiLiCorr drafts when it refuses them; only the former are supported here."""


def _replace_init(original: Any) -> Any:
    from vllm.platforms import current_platform

    from infernix_plugin.seams.flash_next import widen_feedback

    @functools.wraps(original)
    def init(self: Any, vllm_config: Any, device: Any, pass_hidden_states_to_model: bool, runner: Any = None) -> None:
        draft = vllm_config.speculative_config.draft_model_config
        if draft.uses_mrope and not vllm_config.model_config.uses_mrope:
            _strip_mrope(draft)
        original(self, vllm_config, device, pass_hidden_states_to_model, runner)
        if current_platform.is_cpu():
            widen_feedback(self, draft)

    return init


def _strip_mrope(draft: Any) -> None:
    """Make a drafter use one row of positions, which for text is the same: all rows of M-RoPE are equal there."""
    for config in _configs(draft):
        parameters = getattr(config, "rope_parameters", None)
        if parameters is not None:
            parameters.pop("mrope_section", None)
            parameters.pop("mrope_interleaved", None)
    if draft.uses_mrope:
        raise InfernixError("infernix-plugin: the draft model has several rows of positions, its target only one")


def _configs(draft: Any) -> Iterator[Any]:
    yield draft.hf_config
    yield draft.hf_text_config
    yield draft.hf_config.get_text_config()


def _replace_unsupported_features(original: Any) -> Any:
    @functools.wraps(original)
    def _get_v1_model_runner_unsupported_features(self: Any) -> list[str]:
        from vllm.platforms import current_platform

        found: list[str] = original(self)
        if not (current_platform.is_cpu() and _CANDIDATE_HEAD in found):
            return found
        if "DFlash2DraftModel" not in self.speculative_config.draft_model_config.architectures:
            return found
        return [feature for feature in found if feature != _CANDIDATE_HEAD]

    return _get_v1_model_runner_unsupported_features


def _replace_dflash_proposer(original: Any) -> Any:
    from infernix_plugin.spec_decode.dflash2 import CandidateDFlashProposer

    return CandidateDFlashProposer


def _replace_propose(original: Any) -> Any:
    from infernix_plugin.spec_decode.worker import state_of

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, scheduler_output: Any, sampled_token_ids: Any, *args: Any) -> Any:
        return state_of(self).propose(
            self, sampled_token_ids, lambda: original(self, scheduler_output, sampled_token_ids, *args)
        )

    return propose_draft_token_ids


def _replace_sampling(original: Any) -> Any:
    from infernix_plugin.spec_decode.draft_noise import SEEDED_DRAFTS

    @functools.wraps(original)
    def compute_probs_and_sample_next_token(
        logits: Any, sampling_metadata: Any, use_fp64_gumbel: bool = False
    ) -> tuple[Any, Any]:
        drafts, q = original(logits, sampling_metadata, use_fp64_gumbel)
        if sampling_metadata.all_greedy:
            return drafts, q
        return SEEDED_DRAFTS.redraw(drafts, q, sampling_metadata.temperature, sampling_metadata.generators), q

    return compute_probs_and_sample_next_token


POSITIONS = Seam(
    module="vllm.v1.spec_decode.llm_base_proposer",
    attribute="SpecDecodeBaseProposer.__init__",
    reason="M-RoPE is stripped from a text target but not from its drafter, whose rotary kernel writes out of bounds; "
    "and the first runner has no room for the several residual streams that Flash-Next's MTP layer reads.",
    replace=_replace_init,
    parameters=("self", "vllm_config", "device", "pass_hidden_states_to_model", "runner"),
)

UNSUPPORTED_FEATURES = Seam(
    module="vllm.config.vllm",
    attribute="VllmConfig._get_v1_model_runner_unsupported_features",
    reason="The V1 runner, the only one on the CPU, refuses DFlash2 drafts for want of a proposer; we have one.",
    replace=_replace_unsupported_features,
    parameters=("self",),
)

DFLASH = Seam(
    module="vllm.v1.worker.gpu_model_runner",
    attribute="DFlashProposer",
    reason="It ignores the candidate head of DFlash2 drafts.",
    replace=on_cpu(_replace_dflash_proposer),
    parameters=("vllm_config", "device", "runner"),
    members={
        "_sample_draft_tokens": ("self", "hidden_states", "sampling_metadata"),
        "take_last_draft_probs": ("self",),
    },
)

PROPOSE = Seam(
    module="vllm.v1.worker.gpu_model_runner",
    attribute="GPUModelRunner.propose_draft_token_ids",
    reason="One method proposes for a whole batch; n-gram copies take the place of single rows of it.",
    replace=on_cpu(_replace_propose),
    parameters=(
        "self",
        "scheduler_output",
        "sampled_token_ids",
        "sampling_metadata",
        "hidden_states",
        "sample_hidden_states",
        "aux_hidden_states",
        "spec_decode_metadata",
        "common_attn_metadata",
        "slot_mappings",
    ),
)

SAMPLING = Seam(
    module="vllm.v1.spec_decode.llm_base_proposer",
    attribute="compute_probs_and_sample_next_token",
    reason="Sampled drafts ignore the request's seed, so a seeded request does not give the same output again.",
    replace=on_cpu(_replace_sampling),
    parameters=("logits", "sampling_metadata", "use_fp64_gumbel"),
)
