"""Gated delta nets with speculation configured, on the CPU: a step of a single token without drafts.

Reason: the index of the request's state is a column of the block table. With a single row it has that table's stride
and counts as contiguous all the same, so vLLM's ``contiguous()`` changes nothing. The recurrence kernel wants a stride
of 1 and raises "must be contiguous at last dimension", at which the engine dies. It takes a prompt whose last chunk is
a single token, alone in its step.

Fits: vLLM 0.32, CPU platform. Worker process. The target is a module function that is looked up at every call.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from infernix_plugin.seams.seam import Seam, on_cpu


def _replace(original: Any) -> Any:
    import torch

    @functools.wraps(original)
    def _spec_aware_nonspec(layer: Any, attn_metadata_i: Any, *args: Any) -> None:
        slots = attn_metadata_i.non_spec_state_indices_tensor
        if slots is not None and slots.stride(0) != 1:
            slots = slots.clone(memory_format=torch.contiguous_format)
            attn_metadata_i = replace(attn_metadata_i, non_spec_state_indices_tensor=slots)
        original(layer, attn_metadata_i, *args)

    return _spec_aware_nonspec


SEAM = Seam(
    module="vllm.model_executor.layers.mamba.ops.cpu.gdn_attention",
    attribute="_spec_aware_nonspec",
    reason="The recurrence kernel refuses the strided state index of a lone token, and the engine dies.",
    replace=on_cpu(_replace),
    parameters=(
        "layer", "attn_metadata_i", "mixed_qkv", "b", "a", "core_attn_out", "conv_buf", "ssm_state", "width",
    ),
    releases=((0, 32),),
)  # fmt: skip
