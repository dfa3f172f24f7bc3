"""Experts on processors with bfloat16 dot products: a faster kernel of vLLM's own stands before its portable one.

Reason: vLLM chooses the kernel of experts from a fixed list, without an extension point, and uses its dot-product
kernel for quantized experts only.

Fits: vLLM 0.32 and 0.33, CPU platform. Worker process. The target is a module function that is looked up at every call.
"""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam, on_cpu


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def backend_to_kernel_cls(backend: Any) -> list[Any]:
        from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

        from infernix_plugin.model_executor.cpu_experts import DotProductExperts

        kernels: list[Any] = original(backend)
        if CPUUnquantizedExperts in kernels:
            kernels.insert(kernels.index(CPUUnquantizedExperts), DotProductExperts)
        return kernels

    return backend_to_kernel_cls


SEAM = Seam(
    module="vllm.model_executor.layers.fused_moe.oracle.unquantized",
    attribute="backend_to_kernel_cls",
    reason="The list of kernels for experts is fixed, and its portable kernel takes over twice the time it has to.",
    replace=on_cpu(_replace),
    parameters=("backend",),
)
