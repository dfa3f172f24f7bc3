"""What a page of sparse attention holds, and the backend that lays out a step.

A token has one row ``[key heads * D | value heads * D | index key]``. The index keys of ``c`` tokens make a block:

    block key = rotated to the block's first position (norm(mean of the block's index keys))

The row of a token holds its own index key, except that the row of a block's last token holds the block key: its own is
not needed again, because whatever changes the block writes its last token anew. So a step computes only the keys of the
blocks that it completes, reading them costs a block's share of the context, and there is no second cache: rejected
drafts are overwritten, with the block keys that they made, by the tokens that come in their place, and chunked prompts,
cached prefixes and preemption need no further thought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder, MultipleOf

from infernix_plugin.model_executor.models.flash_next.selection import tokens_of

FEW = 8
"""Requests with so many tokens in a step, or with drafts and one more, are done side by side; others one by one."""


@dataclass(frozen=True)
class Request:
    """A request with many tokens in a step: tokens ``[start, end)`` of it, a context of ``length`` with them, pages."""

    start: int
    end: int
    length: int
    pages: Tensor


@dataclass(frozen=True)
class SparseStep:
    """One step of ``T`` tokens.

    Attributes:
        slots: int64 ``[T]``, row of every token; negative: not kept.
        written: int64 ``[n]`` or None, which tokens are kept; None: all.
        closing: int64 ``[n]``, tokens that complete a block.
        starts: int64 ``[n]``, position at which each of those blocks begins.
        few: int64 ``[R, q]``, tokens of requests with few tokens; short requests repeat their last one.
        even: whether ``few`` is all of the step, there are tokens, and no request repeats one.
        positions: int64 ``[R, q]``, theirs.
        pages: int64 ``[R, n]``, the pages of those requests.
        many: the other requests.
        page_size: rows of a page.
        block: tokens of an index block.
        seen: the rows that the queries of ``few`` see, as from ``rows_of``, where they take all blocks that there are:
            they are the same for all layers then. None where they have to choose.
    """

    slots: Tensor
    written: Tensor | None
    closing: Tensor
    starts: Tensor
    few: Tensor
    even: bool
    positions: Tensor
    pages: Tensor
    many: tuple[Request, ...]
    page_size: int
    block: int
    seen: tuple[Tensor, Tensor] | None = None

    def rows_of(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """List the rows that the queries of ``few`` see.

        Args:
            blocks: int64 ``[R, q, k]``, from ``best_blocks``.

        Returns:
            int64 and bool ``[R * q, m]``: rows, and which of them count.
        """
        tokens, counts = tokens_of(blocks, self.positions, self.block)
        page = self.pages.gather(1, (tokens // self.page_size).flatten(1)).view_as(tokens)
        return (page * self.page_size + tokens % self.page_size).flatten(0, 1), counts.flatten(0, 1)


class SparseStepBuilder(AttentionMetadataBuilder[SparseStep]):  # type: ignore[misc]
    """Builds ``SparseStep``."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        """Keep what does not change between steps.

        Raises:
            ValueError: a page does not hold whole blocks.
        """
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        config = vllm_config.model_config.hf_text_config
        self.block, self.k = config.indexer_compress_ratio, config.indexer_budget // config.indexer_compress_ratio
        self.page_size = kv_cache_spec.block_size
        self.few = max(FEW, vllm_config.num_speculative_tokens + 1)
        if self.page_size % self.block:
            raise ValueError(f"pages of {self.page_size} tokens do not hold whole index blocks of {self.block} tokens")

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> SparseStep:
        """Lay out the step."""
        # In numpy, whose calls cost a fraction of torch's: a step of a few tokens makes dozens of them.
        step = common_attn_metadata
        starts, lengths = (part.numpy() for part in (step.query_start_loc_cpu.long(), step.seq_lens.long()))
        counts, lengths = np.diff(starts), lengths[: step.num_reqs]
        requests = np.arange(len(counts)).repeat(counts)
        positions = np.arange(len(requests)) + (lengths - starts[1:])[requests]
        slots = step.slot_mapping[: len(requests)].long()
        table = step.block_table_tensor[: step.num_reqs].numpy()
        kept = slots.numpy() >= 0
        closing = ((positions + 1) % self.block == 0) & kept
        is_few = (counts <= self.few) & (counts > 0)
        widest, longest = (int(part[is_few].max(initial=0)) for part in (counts, lengths))
        few = np.minimum(starts[:-1][is_few, None] + np.arange(widest), starts[1:][is_few, None] - 1)
        many = tuple(
            Request(int(starts[row]), int(starts[row + 1]), int(lengths[row]), self._pages(table[row], lengths[row]))
            for row in np.flatnonzero(counts > self.few)
        )
        pages = self._pages(table[is_few], longest)
        return SparseStep(
            slots=slots,
            written=None if kept.all() else torch.from_numpy(np.flatnonzero(kept)),
            closing=torch.from_numpy(np.flatnonzero(closing)),
            starts=torch.from_numpy(positions[closing] + 1 - self.block),
            few=torch.from_numpy(few),
            even=0 < few.size == len(requests) and not many,
            positions=torch.from_numpy(positions[few]),
            pages=pages,
            many=many,
            page_size=self.page_size,
            block=self.block,
            seen=self._seen(positions[few], pages.numpy()),
        )

    def _seen(self, positions: Any, pages: Any) -> tuple[Tensor, Tensor] | None:
        """Return ``SparseStep.seen`` for arrays of the few's positions ``[R, q]`` and pages ``[R, n]``."""
        if not positions.size or ((positions + 1) // self.block > self.k).any():
            return None
        tokens = np.arange(positions.max() + 1)
        counts = tokens <= positions.reshape(-1, 1)
        tokens = np.where(counts, tokens, 0)  # what does not count is read all the same
        rows = np.take_along_axis(pages.repeat(positions.shape[1], axis=0), tokens // self.page_size, axis=1)
        return torch.from_numpy(rows * self.page_size + tokens % self.page_size), torch.from_numpy(counts)

    def _pages(self, table: Any, length: int) -> Tensor:
        """Return the pages of a context of ``length`` tokens, int64 ``[..., n]``, off an array ``[..., most]``."""
        return torch.from_numpy(table[..., : -(-length // self.page_size)].astype(np.int64))


class SparseBackend(AttentionBackend):  # type: ignore[misc]
    """Pages as above, of bfloat16. Use a subclass from ``backend_for``."""

    supported_dtypes = [torch.bfloat16]  # noqa: RUF012
    supported_kv_cache_dtypes = ["auto", "bfloat16"]  # noqa: RUF012
    index_width = 0

    @staticmethod
    def get_name() -> str:
        """Return the name in vLLM's log."""
        return "FLASH_NEXT_SPARSE"

    @staticmethod
    def get_impl_cls() -> Any:
        """Raise: the layer computes its attention itself.

        Raises:
            TypeError: always.
        """
        raise TypeError("a layer of sparse attention computes its attention itself")

    @staticmethod
    def get_builder_cls() -> type[SparseStepBuilder]:
        """Return the builder of each step's metadata."""
        return SparseStepBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        """Return which page sizes fit: any number of whole blocks, for blocks of a power of two."""
        return [MultipleOf(32)]

    @classmethod
    def is_sparse(cls) -> bool:
        """Tell that not every key is read."""
        return True

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Give a page one row per token, as wide as the module's docstring says."""
        width = spec.num_kv_heads * (spec.head_size + spec.head_size_v) + cls.index_width
        return replace(spec, num_head_slots=1, state_content_bytes=width * spec.dtype.itemsize)


@cache
def backend_for(index_width: int) -> type[SparseBackend]:
    """Return the backend for index keys of ``index_width`` entries; vLLM asks the class for the size of a page."""
    return type(f"SparseBackend{index_width}", (SparseBackend,), {"index_width": index_width})
