"""Sparse attention: every query attends to the tokens that an index chose for it.

With ``H`` query heads and ``K`` key heads of width ``D``, queries come with a gate each, queries and keys are normed
head by head and rotated, and the output is ``o(sigmoid(gate) * attention)``. The index has a few query heads of its own
and one key; see ``sparse_pages`` for how its keys are kept and ``selection`` for what it chooses.

In decoding, the rows of the chosen tokens are gathered, so that a step costs what the budget allows, not what the
context is long. Long parts of prompts attend to the context as a whole, under a mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear
from vllm.v1.kv_cache_interface import FullAttentionSpec

from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm
from infernix_plugin.model_executor.models.flash_next.operators import sparse_attention
from infernix_plugin.model_executor.models.flash_next.rotary import Rotary
from infernix_plugin.model_executor.models.flash_next.selection import best_blocks, visible
from infernix_plugin.model_executor.models.flash_next.sparse_pages import (
    Request,
    SparseBackend,
    SparseStep,
    backend_for,
)
from infernix_plugin.model_executor.models.flash_next.streams import linear

GATHERED = 1 << 25
"""Entries of gathered rows at a time: 64 MiB."""

MASKED = 1 << 24
"""Entries of a prompt's mask at a time: 16 MiB."""


class Index(nn.Module):
    """The projections of the index: queries ``[tokens, heads, d]`` and one key ``[tokens, d]``."""

    def __init__(self, config: Any, prefix: str) -> None:
        """Read the sizes off a ``Qwen4ExpTextConfig``."""
        super().__init__()
        self.heads, self.width = config.indexer_n_heads, config.indexer_head_dim
        self.index_qk_proj = linear(config.hidden_size, (self.heads + 1) * self.width, f"{prefix}.index_qk_proj")
        self.q_layernorm = OffsetNorm(self.width, config.rms_norm_eps)
        self.k_layernorm = OffsetNorm(self.width, config.rms_norm_eps)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return normed queries, not rotated, and keys as they are kept."""
        both = self.index_qk_proj(hidden).unflatten(-1, (-1, self.width))
        return self.q_layernorm(both[:, :-1]), both[:, -1]


class SparseAttention(nn.Module, AttentionLayerBase):  # type: ignore[misc]
    """One layer of sparse attention with its pages."""

    def __init__(self, vllm_config: Any, prefix: str) -> None:
        """Build the layer under its full name ``prefix``.

        Raises:
            ValueError: pages of a type other than the model's, or a checkpoint without an index.
        """
        nn.Module.__init__(self)
        config = vllm_config.model_config.hf_text_config
        if config.indexer_n_heads is None:
            raise ValueError("Flash-Next on the CPU needs sparse attention: the configuration has no indexer_n_heads")
        if vllm_config.cache_config.cache_dtype not in SparseBackend.supported_kv_cache_dtypes:
            raise ValueError(
                f"Flash-Next on the CPU keeps bfloat16 keys and values, not {vllm_config.cache_config.cache_dtype}"
            )
        self.width = config.head_dim
        self.block, self.k = config.indexer_compress_ratio, config.indexer_budget // config.indexer_compress_ratio
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        biased = config.attention_bias
        self.qkv_proj = QKVParallelLinear(  # every query head is twice as wide: the query, then its gate
            config.hidden_size, self.width, 2 * heads, kv_heads, bias=biased, prefix=f"{prefix}.qkv_proj"
        )
        self.o_proj = RowParallelLinear(heads * self.width, config.hidden_size, bias=biased, prefix=f"{prefix}.o_proj")
        self.heads, self.kv_heads = self.qkv_proj.num_heads // 2, self.qkv_proj.num_kv_heads
        self.q_norm, self.k_norm = (OffsetNorm(self.width, config.rms_norm_eps) for _ in range(2))
        self.indexer = Index(config, f"{prefix}.indexer")
        self.rotary = Rotary(config)
        self.prefix, self.dtype = prefix, vllm_config.model_config.dtype
        self.backend = backend_for(self.indexer.width)
        self.kv_cache = torch.tensor([])
        vllm_config.compilation_config.static_forward_context[prefix] = self

    def get_attn_backend(self) -> type[SparseBackend]:
        """Return the backend that lays out the pages."""
        return self.backend

    def get_kv_cache_spec(self, vllm_config: Any) -> FullAttentionSpec:
        """Return the pages."""
        return self.backend.customize_spec(
            FullAttentionSpec(
                block_size=vllm_config.cache_config.block_size,
                num_kv_heads=self.kv_heads,
                head_size=self.width,
                dtype=self.dtype,
            )
        )

    def forward(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Return ``[tokens, width]`` for hidden states of the same shape at ``positions``, int64 ``[tokens]``."""
        sizes = [2 * self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        queries, keys, values = self.qkv_proj(hidden)[0].split(sizes, dim=-1)
        queries, gate = queries.unflatten(-1, (self.heads, 2, self.width)).unbind(-2)
        queries = self.rotary(self.q_norm(queries), positions)
        keys = self.rotary(self.k_norm(keys.unflatten(-1, (self.kv_heads, self.width))), positions)
        found, index_keys = self.indexer(hidden)
        new = torch.cat([keys.flatten(1), values, index_keys], dim=-1)
        out = sparse_attention(queries, new, self.rotary(found, positions), self.prefix)
        projected: Tensor = self.o_proj(out.flatten(1) * torch.sigmoid(gate.flatten(1)))[0]
        return projected

    def attend(self, queries: Tensor, new: Tensor, index_queries: Tensor) -> Tensor:
        """Keep the rows of the step's tokens, and attend to those that the index chooses.

        Args:
            queries: ``[tokens, H, D]``, rotated.
            new: ``[tokens, width of a row]``.
            index_queries: ``[tokens, index heads, d]``, rotated.

        Returns:
            ``[tokens, H, D]``.
        """
        metadata = get_forward_context().attn_metadata
        if metadata is None:  # vLLM measures memory before there are pages
            return torch.zeros_like(queries, memory_format=torch.contiguous_format)
        step: SparseStep = metadata[self.prefix]
        rows = self.kv_cache.view(-1, self.kv_cache.size(-1))
        self._write(rows, new, step)
        return self._attend(queries, index_queries, rows, step)

    def _write(self, rows: Tensor, new: Tensor, step: SparseStep) -> None:
        """Keep the rows of the step, then the keys of the blocks that it completes."""
        if step.written is None:
            rows.index_copy_(0, step.slots, new)
        else:
            rows.index_copy_(0, step.slots[step.written], new[step.written])
        if len(step.closing):
            last = step.slots[step.closing]
            index = rows[:, -self.indexer.width :]
            block = index[last[:, None] + torch.arange(1 - self.block, 1)]
            key = self.indexer.k_layernorm(block.float().mean(1).to(new.dtype))
            index[last] = self.rotary(key[:, None], step.starts)[:, 0]

    def _attend(self, queries: Tensor, found: Tensor, rows: Tensor, step: SparseStep) -> Tensor:
        if step.even:
            shape = (*step.few.shape, -1, self.width), (*step.few.shape, -1, self.indexer.width)
            return self._few(queries.reshape(shape[0]), found.reshape(shape[1]), rows, step)
        out = torch.empty_like(queries, memory_format=torch.contiguous_format)
        pages = rows.view(-1, step.page_size, rows.size(-1))
        if step.few.numel():
            out[step.few.flatten()] = self._few(queries[step.few], found[step.few], rows, step)
        for request in step.many:
            part = slice(request.start, request.end)
            out[part] = self._many(queries[part], found[part], pages, request)
        return out

    def _block_keys(self, pages: Tensor, numbers: Tensor) -> Tensor:
        """Return the block keys ``[R, blocks, d]`` of the pages ``numbers``, ``[R, n]``, whether complete or not."""
        held = pages[:, self.block - 1 :: self.block, -self.indexer.width :]
        return held.index_select(0, numbers.flatten()).view(len(numbers), -1, self.indexer.width)

    def _few(self, queries: Tensor, found: Tensor, rows: Tensor, step: SparseStep) -> Tensor:
        """Attend from ``queries`` ``[R, q, H, D]`` to gathered rows; returns ``[R * q, H, D]``."""
        if step.seen is None:
            keys = self._block_keys(rows.view(-1, step.page_size, rows.size(-1)), step.pages)
            slots, counts = step.rows_of(best_blocks(found, keys, (step.positions + 1) // self.block, self.k))
        else:
            slots, counts = step.seen
        grouped = queries.reshape(len(slots), self.kv_heads, -1, self.width)
        at_once = max(1, GATHERED // (slots.size(1) * rows.size(1)))
        parts = zip(*(torch.split(part, at_once) for part in (grouped, slots, counts)), strict=True)
        return torch.cat([self._gathered(rows, *part) for part in parts]).flatten(1, 2)

    def _gathered(self, rows: Tensor, queries: Tensor, slots: Tensor, counts: Tensor) -> Tensor:
        """Attend from ``[n, K, H / K, D]`` to the rows ``slots`` ``[n, m]`` that count; returns the same shape."""
        read = rows.index_select(0, slots.flatten()).view(*slots.shape, -1)
        keys, values = self._heads(read)
        return scaled_dot_product_attention(queries, keys, values, attn_mask=counts[:, None, None])

    def _heads(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values ``[..., K, n, D]`` of rows ``[..., n, width]``."""
        both = read[..., : -self.indexer.width].view(*read.shape[:-1], 2, self.kv_heads, self.width)
        keys, values = both.unbind(-3)
        return keys.transpose(-3, -2), values.transpose(-3, -2)

    def _many(self, queries: Tensor, found: Tensor, pages: Tensor, request: Request) -> Tensor:
        """Attend from ``queries`` ``[n, H, D]`` of one request to its whole context; returns the same shape."""
        keys, values = self._heads(pages.index_select(0, request.pages).flatten(0, 1)[: request.length])
        block_keys = self._block_keys(pages, request.pages[None])
        at_once = max(1, MASKED // request.length)
        positions = torch.arange(request.length - len(queries), request.length)
        parts = zip(*(torch.split(part, at_once) for part in (queries, found, positions)), strict=True)
        out = []
        for some, index_queries, at in parts:
            blocks = best_blocks(index_queries[None], block_keys, (at[None] + 1) // self.block, self.k)
            mask = visible(blocks, at[None], self.block, request.length)
            grouped = some.view(len(some), self.kv_heads, -1, self.width).permute(1, 2, 0, 3)
            shape = (*grouped.shape[:2], *keys.shape[1:])
            attended = scaled_dot_product_attention(
                grouped, keys[:, None].expand(shape), values[:, None].expand(shape), attn_mask=mask
            )
            out.append(attended.permute(2, 0, 1, 3).flatten(1, 2))
        return torch.cat(out)
