"""``min_p`` and ``logit_bias`` beside drafts, where our sampler verifies: vLLM refuses and drops both."""

from __future__ import annotations

import copy
import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _verified_by_us() -> bool:
    """Tell whether an engine of this process has our rejection sampler: the V1 runner on the CPU.

    The configuration of the engine is not at hand where parameters are judged; what decides the runner is.
    """
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.triton_utils import HAS_TRITON

    chosen = envs.VLLM_USE_V2_MODEL_RUNNER
    return current_platform.is_cpu() and not (HAS_TRITON if chosen is None else chosen)


def _replace_validation(original: Any) -> Any:
    @functools.wraps(original)
    def _validate_spec_decode(self: Any, speculative_config: Any) -> None:
        judged = self
        if (self.min_p or self.logit_bias) and _verified_by_us():
            judged = copy.copy(self)
            judged.min_p, judged.logit_bias = 0.0, None
        original(judged, speculative_config)

    return _validate_spec_decode


def _replace_processors(original: Any) -> Any:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return original
    from vllm.v1.sample.logits_processor import LogitsProcessors

    from infernix_plugin.spec_decode.hypothetical import PROCESSORS

    @functools.wraps(original)
    def build_logitsprocs(
        vllm_config: Any,
        device: Any,
        is_pin_memory: bool,
        is_pooling_model: bool,
        custom_logitsprocs: Any = (),
    ) -> Any:
        if vllm_config.speculative_config is None or is_pooling_model or custom_logitsprocs:
            return original(vllm_config, device, is_pin_memory, is_pooling_model, custom_logitsprocs)
        return LogitsProcessors(kind(vllm_config, device, is_pin_memory) for kind in PROCESSORS)

    return build_logitsprocs


VALIDATION = Seam(
    module="vllm.sampling_params",
    attribute="SamplingParams._validate_spec_decode",
    reason="It refuses min_p and logit_bias with speculation; our sampler applies both at the hypothetical prefix.",
    replace=_replace_validation,
    parameters=("self", "speculative_config"),
)

PROCESSORS_OF_RUNNER = Seam(
    module="vllm.v1.worker.gpu_model_runner",
    attribute="build_logitsprocs",
    reason="With speculation it builds no processors for min_p and logit_bias, which then would have no effect.",
    replace=_replace_processors,
    parameters=("vllm_config", "device", "is_pin_memory", "is_pooling_model", "custom_logitsprocs"),
)
