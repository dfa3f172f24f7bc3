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

import numpy as np
import torch
from torch import Tensor
from vllm.v1.attention.backends.short_conv_attn import ShortConvAttentionBackend, ShortConvAttentionMetadataBuilder
from vllm.v1.attention.backends.utils import mamba_get_block_table_tensor


@dataclass(frozen=True)
class RollingWindow:
    """Where a step reads and writes, for ``T`` tokens of ``R`` requests.

    *Lined up* are ``R * K + T`` rows: the ``K`` prior inputs of every request, then the step's own inputs.

    Attributes:
        recent: int64 ``[T, K + 1]``, lined-up rows that each token sees, oldest first, the last its own.
        read: two int64 index tensors of the buffers, ``[R, 1]`` and ``[R, K]``.
        fresh: bool ``[R]``, requests without a past; None: all have one.
        write: two int64 index tensors of the buffers, ``[n]`` each.
        kept: int64 ``[n]``, the lined-up rows written there.
    """

    recent: Tensor
    read: tuple[Tensor, Tensor]
    fresh: Tensor | None
    write: tuple[Tensor, Tensor]
    kept: Tensor

    def line_up(self, buffers: Tensor, initial: Tensor, inputs: Tensor) -> Tensor:
        """Return the rows ``[R * K + T, width]`` of a step.

        Args:
            buffers: ``[slots, K + S, width]``.
            initial: ``[width]``, what a request without a past sees.
            inputs: ``[T, width]``.
        """
        prior = buffers[self.read]
        if self.fresh is not None:
            prior = torch.where(self.fresh[:, None, None], initial, prior)
        return torch.cat([prior.flatten(0, 1), inputs])

    def store(self, buffers: Tensor, lined_up: Tensor) -> None:
        """Update ``buffers`` from the rows of a step."""
        buffers[self.write] = lined_up.index_select(0, self.kept)

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
        # In numpy, whose calls cost a fraction of torch's: a step of a few tokens makes dozens of them.
        first, offset = starts.numpy()[:-1], offsets.numpy()
        lengths = np.diff(starts.numpy())
        requests, steps = np.arange(len(first)), np.arange(back)
        inputs = len(first) * back  # the lined-up row of the first one

        def rows(request: Any, place: Any) -> Any:
            """Return the lined-up rows of places in ``prior ++ x`` of requests."""
            return np.where(place < back, request * back, inputs + first[request] - back) + place

        of_token = requests.repeat(lengths)
        own = np.arange(len(of_token)) - first[of_token]
        speculative = offset >= 0
        counts = np.where(speculative, back - 1 + lengths, back)
        of_kept = requests.repeat(counts)
        column = np.arange(len(of_kept)) - (counts.cumsum() - counts)[of_kept]
        read = np.maximum(offset, 0)[:, None] + steps
        recent = rows(of_token[:, None], own[:, None] + np.arange(back + 1))
        kept = rows(of_kept, np.where(speculative, 1, lengths)[of_kept] + column)
        written, columns, kept, recent, read = map(torch.from_numpy, (of_kept, column, kept, recent, read))
        return cls(
            recent=recent,
            read=(slots[:, None], read),
            fresh=fresh if bool(fresh.any()) else None,
            write=(slots[written], columns),
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
