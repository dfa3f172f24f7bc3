"""Gated delta nets with speculation on the CPU: rows that verify fewer tokens than the buffer has room for.

Reason: with ``S`` speculative tokens the convolution keeps a buffer of ``width - 1 + S`` inputs per request. After a
step the next one reads ``width - 1`` inputs from column ``accepted - 1``. vLLM 0.32 writes the buffer as if every row
had ``S + 1`` tokens: for a shorter row (n-gram drafts, drafts cut by a grammar, the end of a request) the history lands
in the wrong columns, and once something had been accepted the step dies with "The size of tensor a must match".

With ``q`` tokens in the row, input ``j`` of this step belongs in column ``width - 2 + j``, and the ``width - 2`` inputs
before the first one in front of it, whatever ``q`` is. Columns past ``width - 2 + q`` are never read: at most ``q``
tokens can be accepted. vLLM 0.33 does the same.

Fits: vLLM 0.32, CPU platform. Worker process. The target is a module function that is looked up at every call.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infernix_plugin.seams.seam import Seam, on_cpu

if TYPE_CHECKING:
    from torch import Tensor


def _spec_forward(
    layer: Any,
    attn_metadata_i: Any,
    mixed_qkv_spec: Tensor,
    b_spec: Tensor,
    a_spec: Tensor,
    conv_buf: Tensor,
    ssm_state: Tensor,
    width: int,
    state_len: int,
) -> Tensor:
    """Convolve and recur over the speculative rows; signature of the function it replaces.

    Args:
        layer: the gated-delta-net layer (weights, head layout).
        attn_metadata_i: vLLM's ``GDNAttentionMetadata`` of the step.
        mixed_qkv_spec: ``[tokens, dim]``, tokens ordered by ``spec_query_start_loc``.
        b_spec, a_spec: ``[tokens, value heads]``, gate inputs.
        conv_buf: ``[slots, dim, state_len]``, updated in place.
        ssm_state: ``[slots, value heads, key dim, value dim]``, updated in place: block column ``t`` of a request holds
            the state after its token ``t``.
        width: of the convolution.
        state_len: ``width - 1 + S``.

    Returns:
        ``[tokens, value heads, value dim]``.
    """
    import torch
    from vllm import _custom_ops

    rows = attn_metadata_i.num_spec_decodes
    starts = attn_metadata_i.spec_query_start_loc[: rows + 1].to("cpu", torch.int32)
    accepted = attn_metadata_i.num_accepted_tokens[:rows].to("cpu", torch.int32)
    slots = attn_metadata_i.spec_state_indices_tensor[:rows].to("cpu", torch.int32).contiguous()

    native = _has_native_kernel(width) and bool((starts.diff() == state_len - width + 2).all())
    convolve = _convolve_full_rows if native else _convolve_rows
    convolved = convolve(layer, mixed_qkv_spec, conv_buf, starts, accepted, slots[:, 0].contiguous())
    query, key, value = (part.squeeze(0) for part in layer.rearrange_mixed_qkv(convolved))
    return _custom_ops.fused_sigmoid_gating_delta_rule_update_spec_cpu(  # type: ignore[no-any-return]
        A_log=layer.A_log,
        dt_bias=layer.dt_bias,
        q=query,
        k=key,
        v=value,
        a=a_spec,
        b=b_spec,
        initial_state_source=ssm_state,
        spec_state_indices=slots,
        num_accepted_tokens=accepted,
        cu_seqlens=starts,
        use_qk_l2norm_in_kernel=True,
    )


def _convolve_rows(layer: Any, x: Tensor, buffers: Tensor, starts: Tensor, accepted: Tensor, slots: Tensor) -> Tensor:
    """Convolve rows of any length, one after the other. Shapes as in ``_convolve_full_rows``."""
    import torch
    from torch.nn.functional import conv1d, silu
    from vllm.model_executor.layers.mamba.ops.cpu.gdn_attention import _unpacked_conv_weight

    weight = _unpacked_conv_weight(layer)
    width = weight.size(-1)
    out = torch.empty_like(x)
    for slot, kept, (start, end) in zip(slots.tolist(), accepted.tolist(), pairwise(starts.tolist()), strict=True):
        if start == end:
            continue
        buffer = buffers[slot]
        history = buffer[:, kept - 1 : kept - 1 + width - 1]
        inputs = torch.cat([history, x[start:end].T.to(buffer.dtype)], dim=-1)
        result = conv1d(inputs.unsqueeze(0), weight.unsqueeze(1), layer.conv1d.bias, groups=x.size(-1))[0]
        out[start:end] = (silu(result) if layer.activation == "silu" else result).T
        buffer[:, : width - 2 + end - start] = inputs[:, 1:]
    return out


def _convolve_full_rows(
    layer: Any, x: Tensor, buffers: Tensor, starts: Tensor, accepted: Tensor, slots: Tensor
) -> Tensor:
    """Convolve with vLLM's compiled kernel, which writes the buffer as if every row were full.

    Args:
        layer: the gated-delta-net layer.
        x: ``[tokens, dim]``.
        buffers: ``[slots, dim, state_len]``, updated in place.
        starts: int32 ``[rows + 1]``, running token count.
        accepted: int32 ``[rows]``, tokens of the previous step that stayed, at least 1.
        slots: int32 ``[rows]``, buffer of each row.

    Returns:
        ``[tokens, dim]``.
    """
    from vllm.model_executor.layers.mamba.ops.cpu.gdn_attention import _causal_conv1d_update_cpu

    return _causal_conv1d_update_cpu(  # type: ignore[no-any-return]
        x=x.view(len(slots), -1, x.size(-1)),
        conv_states=buffers,
        weight=layer.conv1d.weight,
        bias=layer.conv1d.bias,
        silu_activation=layer.activation == "silu",
        conv_state_indices=slots,
        is_weight_packed=True,
        num_accepted_tokens=accepted,
    ).view_as(x)


def _has_native_kernel(width: int) -> bool:
    """Where upstream uses the compiled convolution for speculative rows: AMX, or bfloat16 on ARM, and width 4."""
    import torch
    from vllm.model_executor.layers.mamba.ops.cpu.gdn_attention import is_arm_bf16

    return width == 4 and bool(torch.cpu._is_amx_tile_supported() or is_arm_bf16())


def _replace(original: Any) -> Any:
    return _spec_forward


SEAM = Seam(
    module="vllm.model_executor.layers.mamba.ops.cpu.gdn_attention",
    attribute="_spec_forward",
    reason="vLLM 0.32 rolls the convolution state wrongly for rows with fewer than S + 1 tokens, or crashes.",
    replace=on_cpu(_replace),
    parameters=(
        "layer", "attn_metadata_i", "mixed_qkv_spec", "b_spec", "a_spec", "conv_buf", "ssm_state", "width", "state_len",
    ),
    releases=((0, 32),),
)  # fmt: skip
