"""The last inputs of every request, kept over the steps: the state of a causal convolution, and of an n-gram hash.

A request has a buffer of ``K + S`` inputs, with ``K`` the inputs that a step looks back at and ``S`` the draft tokens
of a step at most. A step with inputs ``x[0..q-1]`` sees ``prior[0..K-1]`` before them. Where drafts are verified, only
some of the inputs stay, and which is known one step later:

    prior  = buffer[a - 1 : a - 1 + K]        a: tokens of the previous step that stayed; 1 where nothing was drafted
    buffer = (prior ++ x)[1 : K + q]          a speculative step: x[j] ends up at K - 1 + j, whatever q is
    buffer = (prior ++ x)[q : q + K]          any other step

A request's first step sees a given initial input instead. This is also the rule of vLLM's gated delta nets, and what
its prefix caching copies at block borders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.attention.backends.short_conv_attn import ShortConvAttentionBackend, ShortConvAttentionMetadataBuilder
from vllm.v1.attention.backends.utils import mamba_get_block_table_tensor


@dataclass(frozen=True)
class RollingWindow:
    """Where a step reads and writes, for ``T`` tokens of ``R`` requests.

    *Packed* means ``T + R * K`` rows, request by request the ``K`` prior inputs and then the step's own.

    Attributes:
        tokens: int64 ``[T]``, packed row of every token.
        prior: int64 ``[R, K]``, packed rows of the prior inputs.
        read: two int64 index tensors of the buffers, ``[R, 1]`` and ``[R, K]``.
        fresh: bool ``[R]``, requests without a past.
        write: two int64 index tensors of the buffers, ``[n]`` each.
        kept: int64 ``[n]``, the packed rows written there.
    """

    tokens: Tensor
    prior: Tensor
    read: tuple[Tensor, Tensor]
    fresh: Tensor
    write: tuple[Tensor, Tensor]
    kept: Tensor

    @property
    def length(self) -> int:
        """Return the number of packed rows."""
        return self.tokens.numel() + self.prior.numel()

    def load(self, buffers: Tensor, initial: Tensor) -> Tensor:
        """Return the prior inputs ``[R, K, width]`` from ``buffers`` ``[slots, K + S, width]``."""
        return torch.where(self.fresh[:, None, None], initial, buffers[self.read])

    def pack(self, prior: Tensor, inputs: Tensor) -> Tensor:
        """Return the packed rows of ``prior`` ``[R, K, ...]`` and ``inputs`` ``[T, ...]``."""
        packed = inputs.new_empty((self.length, *inputs.shape[1:]))
        packed[self.prior] = prior
        packed[self.tokens] = inputs
        return packed

    def store(self, buffers: Tensor, packed: Tensor) -> None:
        """Update ``buffers`` from the packed rows."""
        buffers[self.write] = packed[self.kept]

    @classmethod
    def of(cls, starts: Tensor, slots: Tensor, offsets: Tensor, fresh: Tensor, *, back: int) -> RollingWindow:
        """Lay out a step.

        Args:
            starts: int64 ``[R + 1]``, running token count.
            slots: int64 ``[R]``, buffer of each request.
            offsets: int64 ``[R]``, ``a - 1`` of speculative rows, -1 of all others.
            fresh: bool ``[R]``.
            back: ``K``.
        """
        lengths = starts.diff()
        requests = torch.arange(len(slots))
        of_token = requests.repeat_interleave(lengths)
        first = starts[:-1] + requests * back
        steps = torch.arange(back)
        speculative = offsets >= 0
        counts = torch.where(speculative, back - 1 + lengths, back)
        of_kept = requests.repeat_interleave(counts)
        column = torch.arange(len(of_kept)) - (counts.cumsum(0) - counts)[of_kept]
        kept = (first + torch.where(speculative, 1, lengths))[of_kept] + column
        return cls(
            tokens=torch.arange(len(of_token)) + (of_token + 1) * back,
            prior=first[:, None] + steps,
            read=(slots[:, None], offsets.clamp(min=0)[:, None] + steps),
            fresh=fresh,
            write=(slots[of_kept], column),
            kept=kept,
        )


class RollingWindowBuilder(ShortConvAttentionMetadataBuilder):  # type: ignore[misc]
    """Builds ``RollingWindow``. A subclass of one of the four builders that vLLM tells how many tokens stayed."""

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: Any,
        fast_build: bool = False,
        *,
        num_accepted_tokens: Tensor | None = None,
        num_decode_draft_tokens_cpu: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the ``RollingWindow`` of the step. vLLM marks rows that are not speculative by -1 drafts."""
        step = common_attn_metadata
        table = mamba_get_block_table_tensor(
            step.block_table_tensor, step.seq_lens, self.kv_cache_spec, self.vllm_config.cache_config.mamba_cache_mode
        )
        starts = step.query_start_loc_cpu.long()
        offsets = torch.full((step.num_reqs,), -1)
        if num_accepted_tokens is not None and num_decode_draft_tokens_cpu is not None:
            drafted = num_decode_draft_tokens_cpu[: step.num_reqs] >= 0
            offsets = torch.where(drafted, num_accepted_tokens[: step.num_reqs].long() - 1, offsets)
        fresh = step.seq_lens[: step.num_reqs] <= starts.diff()
        config = self.vllm_config.model_config.hf_text_config
        return RollingWindow.of(starts, table[: step.num_reqs, 0].long(), offsets, fresh, back=window_length(config))


class RollingWindowBackend(ShortConvAttentionBackend):  # type: ignore[misc]
    """Chooses the builder above."""

    @staticmethod
    def get_name() -> str:
        """Return the name in vLLM's log."""
        return "FLASH_NEXT_ROLLING_WINDOW"

    @staticmethod
    def get_builder_cls() -> type[RollingWindowBuilder]:
        """Return the builder of each step's metadata."""
        return RollingWindowBuilder


def window_length(config: Any) -> int:
    """Return ``K`` of the n-gram layers: what their dilated convolution looks back at; the hash needs less."""
    return max(int(config.ple_conv_kernel_size - 1) * int(config.ngram_size), int(config.ngram_size) - 1)
