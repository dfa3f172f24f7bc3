"""Gated delta nets on the CPU: a prompt, or the last chunk of one, of a single token that is alone in its step.

Reason: the convolution's input is a slice of a wider projection. With a single row it keeps the projection's stride and
counts as contiguous all the same, so vLLM's ``contiguous()`` changes nothing. The kernel wants the stride to be the
slice's own width and raises "expect x to be transposed", at which the engine dies.

Fits: vLLM 0.32 and 0.33, CPU platform. Worker process. The target is a module function that is looked up at every call.
"""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam, on_cpu


def _replace(original: Any) -> Any:
    import torch

    @functools.wraps(original)
    def _causal_conv1d_fwd_cpu(*, x: Any, **rest: Any) -> Any:
        """``x``: [channels, tokens], the channels of a token side by side."""
        if x.stride(1) != x.size(0):
            x = x.transpose(0, 1).clone(memory_format=torch.contiguous_format).transpose(0, 1)
        return original(x=x, **rest)

    return _causal_conv1d_fwd_cpu


SEAM = Seam(
    module="vllm.model_executor.layers.mamba.ops.cpu.gdn_attention",
    attribute="_causal_conv1d_fwd_cpu",
    reason="The convolution kernel refuses the strided input of a lone token, and the engine dies.",
    replace=on_cpu(_replace),
    parameters=(
        "x", "weight", "bias", "conv_states", "query_start_loc", "cache_indices", "has_initial_state",
        "silu_activation", "is_weight_packed",
    ),
)  # fmt: skip
