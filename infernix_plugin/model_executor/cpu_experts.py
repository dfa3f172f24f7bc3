"""Experts in bfloat16 on processors with bfloat16 dot products (AVX512-BF16) and without matrix tiles (AMX).

vLLM has a kernel for AMX and a portable one, and also a kernel for quantized experts that takes bfloat16 weights and
multiplies with ``vdpbf16ps``. The last is what these processors are made for: a step of few tokens takes less than half
of the portable kernel's time. It sums in float32, as the portable one does, and rounds the activations between its two
products to bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm._custom_ops import CPUQuantMethod, fused_experts_cpu
from vllm.model_executor.kernels.linear.zentorch_utils import is_zentorch_moe_config_supported
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import current_platform


class DotProductExperts(CPUUnquantizedExperts):  # type: ignore[misc]
    """vLLM's portable experts, computed by its dot-product kernel."""

    output_alignment = 32
    reduction_alignment = 32

    @staticmethod
    def _supports_current_device() -> bool:
        return (
            bool(current_platform.is_cpu())
            and torch.cpu._is_avx512_bf16_supported()
            and not torch.cpu._is_amx_tile_supported()
            and hasattr(torch.ops._C, "fused_experts_cpu")
        )

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return bool(activation == MoEActivation.SILU)

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        return not moe_parallel_config.use_ep

    @staticmethod
    def is_supported_config(cls: Any, moe_config: Any, *keys_and_format: Any) -> tuple[bool, str | None]:
        """Tell whether a layer can be computed so; if not, say why not."""
        supported, reason = CPUUnquantizedExperts.is_supported_config(cls, moe_config, *keys_and_format)
        if supported and (moe_config.in_dtype != torch.bfloat16 or moe_config.has_bias):
            return False, "the kernel requires bfloat16 activations and experts without biases"
        if supported and is_zentorch_moe_config_supported(moe_config):
            return False, "zentorch computes these experts"
        return supported, reason

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Pad and pack the weights of ``layer``, ``[experts, outputs, inputs]`` each."""
        self._pad_moe_intermediate(layer)
        for name in ("w13_weight", "w2_weight"):
            replace_parameter(layer, name, torch.ops._C.convert_weight_packed(getattr(layer, name)))

    def apply(self, **given: Any) -> None:
        """Write what the experts make of ``hidden_states`` ``[tokens, H]`` to ``output``, of the same shape.

        Args:
            given: what vLLM hands to experts, by name. With ``apply_router_weight_on_input`` the hidden states have
                been multiplied by the router's weights already.
        """
        if not len(given["hidden_states"]):
            return  # the kernel divides by the number of tokens
        weights = given["topk_weights"]
        if given["apply_router_weight_on_input"]:
            weights = torch.ones_like(weights)
        packed = given["w1"], given["w2"]
        routed = weights, given["topk_ids"]
        unquantized = CPUQuantMethod.UNQUANT, None, None, None, None, None
        fused_experts_cpu(given["output"], given["hidden_states"], *packed, *routed, *unquantized)
