"""Recurrent states at the borders of cached blocks, with speculation, on the CPU.

Reason: with prefix caching a hybrid model keeps the state of a request in the block it is writing ("align" mode). When
speculation carries the request over a border, the state at the border has to be copied to where the cache expects it,
and from there into the next block. vLLM has these copies as Triton kernels only, so on the CPU the first step dies with
"'function' object is not subscriptable". Here they are assignments between views of the same pages.

A request's block table has a column per block, then one per speculative token. A state is one of two kinds:

- a window of the last inputs (convolutions, token ids): one buffer, whose position ``b`` begins what a step reads after
  ``b + 1`` of its tokens were accepted;
- a recurrence: the state after token ``b`` of the step stands in a block of its own, ``b`` columns further on.

Either way "the state ``bias`` tokens after the first of the step" is what is copied.

Fits: vLLM 0.32 and 0.33, CPU platform without Triton, first model runner. Worker process. States are read and written
through ``layer.kv_cache``, so it serves every layer whose copy functions are vLLM's two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infernix_plugin.seams.seam import Seam, on_cpu

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class State:
    """One state of one layer, for all requests.

    ``blocks``: ``[blocks, ...]``, the layer's view of the pages.
    ``table``: int32 ``[requests, columns]``, which block a column of a request is.
    ``window``: the dimension of a block along which a window of inputs moves; ``None`` for a recurrence.
    """

    blocks: Tensor
    table: Tensor
    window: int | None

    def copy(self, request: int, source: int, target: int, bias: int) -> None:
        """Make column ``target`` start from the state ``bias`` tokens after the first one of column ``source``."""
        row = self.table[request]
        into = self.blocks[int(row[target])]
        if self.window is None:
            into.copy_(self.blocks[int(row[source + bias])])
            return
        kept = into.size(self.window) - bias
        moved = self.blocks[int(row[source])].narrow(self.window, bias, kept)
        into.narrow(self.window, 0, kept).copy_(moved.clone())  # source and target may be one block


def states_of(kv_cache_config: Any, layers: dict[str, Any], copy_funcs: Any, tables: dict[int, Tensor]) -> list[State]:
    """List every state of every recurrent layer.

    Args:
        kv_cache_config: vLLM's, which layers share a block table.
        layers: by name; ``kv_cache`` of each is the list of its states.
        copy_funcs: per kind of layer, vLLM's copy function of each of its states: they say which kind a state is.
        tables: block table by group, int32 ``[requests, columns]``.
    """
    from vllm.model_executor.layers.mamba.mamba_utils import get_conv_copy_spec, is_conv_state_dim_first
    from vllm.v1.worker.mamba_utils import _get_mamba_spec_for_layer

    window = -1 if is_conv_state_dim_first() else 0
    states = []
    for group, table in tables.items():
        for name in kv_cache_config.kv_cache_groups[group].layer_names:
            spec = _get_mamba_spec_for_layer(kv_cache_config.kv_cache_groups[group], name)
            for blocks, copy_func in zip(layers[name].kv_cache, copy_funcs[spec.mamba_type], strict=False):
                states.append(State(blocks, table, window if copy_func is get_conv_copy_spec else None))
    return states


@dataclass(frozen=True)
class Step:
    """What one step did to each request; all int ``[requests]``.

    ``column``: where the step wrote its states. ``computed``: tokens before it. ``scheduled``: tokens in it, of which
    the last ``drafts`` were drafts. ``accepted``: tokens that it yielded, so the last ``accepted - 1`` accepted drafts.
    """

    column: Tensor
    computed: Tensor
    scheduled: Tensor
    drafts: Tensor
    accepted: Tensor


def save_at_borders(states: list[State], step: Step, block_size: int) -> Tensor:
    """Copy the state at the last border that each request has passed to where the cache looks for it.

    Returns:
        Like ``step.accepted``, with 1 where the state that the next step reads was moved to the first position.
    """
    certain = step.computed + step.scheduled - step.drafts
    border = (certain + step.accepted - 1) // block_size * block_size
    reads_from = step.accepted.clone()
    for request in (border >= certain).nonzero().flatten().tolist():
        source, target = int(step.column[request]), int(border[request]) // block_size - 1
        bias = int(border[request] - certain[request])
        if source == target:
            reads_from[request] = 1
            if bias == 0:
                continue
        for state in states:
            state.copy(request, source, target, bias)
    return reads_from


def _replace(original: Any) -> Any:
    from vllm.triton_utils import HAS_TRITON

    if HAS_TRITON:
        return original

    @dataclass
    class AlignStateCopy(original):  # type: ignore[misc]
        """vLLM's owner of these copies, on tensors in place of addresses."""

        states: list[State] = field(default_factory=list)

        def initialize_from_forward_context(
            self,
            kv_cache_config: Any,
            forward_context: dict[str, Any],
            mamba_state_copy_funcs: Any,
            block_tables: list[Tensor],
            aligned_index_block_tables: list[Tensor] | None = None,
        ) -> None:
            """Find the states; the tables given are the rows in use now of tables that stay where they are."""
            requests = len(self.num_accepted_tokens_out)
            tables = [table.as_strided((requests, table.size(1)), table.stride()) for table in block_tables]
            by_group = dict(zip(self.mamba_group_ids, tables, strict=True))
            self.states = states_of(kv_cache_config, forward_context, mamba_state_copy_funcs, by_group)
            self.is_initialized = True

        def run_fused_precopy(
            self,
            num_reqs: int,
            state_idx_gpu: Tensor,
            src_col_gpu: Tensor,
            token_bias_gpu: Tensor,
            idx_mapping: Tensor | None,
        ) -> None:
            """Before a step: carry the state of each request that enters another block into that block."""
            sources, targets = src_col_gpu[:num_reqs], state_idx_gpu[:num_reqs]
            for request in ((sources >= 0) & (sources != targets)).nonzero().flatten().tolist():
                for state in self.states:
                    state.copy(request, int(sources[request]), int(targets[request]), int(token_bias_gpu[request]))

        def run_fused_postprocess(
            self,
            num_reqs: int,
            num_accepted_tokens_gpu: Tensor,
            mamba_state_idx_gpu: Tensor,
            num_scheduled_tokens_gpu: Tensor,
            num_computed_tokens_gpu: Tensor,
            num_draft_tokens_gpu: Tensor,
        ) -> None:
            """After a step: see ``save_at_borders``."""
            step = Step(
                column=mamba_state_idx_gpu[:num_reqs],
                computed=num_computed_tokens_gpu[:num_reqs],
                scheduled=num_scheduled_tokens_gpu[:num_reqs],
                drafts=num_draft_tokens_gpu[:num_reqs],
                accepted=num_accepted_tokens_gpu[:num_reqs],
            )
            self.num_accepted_tokens_out[:num_reqs] = save_at_borders(self.states, step, self.block_size)

    return AlignStateCopy


SEAM = Seam(
    module="vllm.v1.worker.mamba_utils",
    attribute="MambaSpecDecodeGPUContext",
    reason="Recurrent states are copied at block borders by Triton kernels only, so nothing caches while speculating.",
    replace=on_cpu(_replace),
    parameters=(
        "state_base_addrs", "state_block_strides", "state_elem_sizes", "state_inner_sizes", "state_conv_widths",
        "state_group_indices", "state_dim_row_count", "state_dim_row_stride", "block_size", "num_states",
        "mamba_group_ids", "num_groups", "num_accepted_tokens_out", "block_table_ptrs",
        "aligned_index_block_table_ptrs", "block_table_stride_req", "aligned_state_indices", "mamba_state_idx_buf",
        "num_scheduled_tokens_buf", "num_computed_tokens_buf", "num_draft_tokens_buf", "precopy_src_col_buf",
        "precopy_token_bias_buf", "is_initialized",
    ),
    members={
        "initialize_from_forward_context": (
            "self", "kv_cache_config", "forward_context", "mamba_state_copy_funcs", "block_tables",
            "aligned_index_block_tables",
        ),
        "run_fused_precopy": (
            "self", "num_reqs", "state_idx_gpu", "src_col_gpu", "token_bias_gpu", "idx_mapping",
        ),
        "run_fused_postprocess": (
            "self", "num_reqs", "num_accepted_tokens_gpu", "mamba_state_idx_gpu", "num_scheduled_tokens_gpu",
            "num_computed_tokens_gpu", "num_draft_tokens_gpu",
        ),
    },
)  # fmt: skip
