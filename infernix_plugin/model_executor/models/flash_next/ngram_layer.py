"""Per-layer n-gram embeddings: features of the last tokens, looked up in a table, added to every residual stream.

With ``e`` the table's rows of a token side by side ``[E]``, ``n`` the streams and ``norm`` applied stream by stream:

    d = <norm(key(e)), norm(n)> / sqrt(H)                      per stream
    v = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))) * value(e)     per stream, [h * H]
    n + v + silu(conv(norm(v)))                                depthwise, causal, dilated by the n-gram order

Between steps the layer keeps the last inputs of the convolution and the last token ids, in one rolling window.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

from infernix_plugin.model_executor.models.flash_next.ngram_hash import NgramHash
from infernix_plugin.model_executor.models.flash_next.ngram_table import NgramTable
from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm
from infernix_plugin.model_executor.models.flash_next.operators import ngram_convolution, ngram_entries
from infernix_plugin.model_executor.models.flash_next.rolling_window import (
    RollingWindow,
    RollingWindowBackend,
    window_length,
)
from infernix_plugin.model_executor.models.flash_next.streams import linear

_ID_WORDS = 4
"""A token id, int64, in units of the 16-bit words that the window is made of."""


class Taps(nn.Module):
    """The weight of a depthwise convolution, ``[channels, 1, taps]``."""

    def __init__(self, channels: int, taps: int) -> None:
        """Make room for the weight."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, taps), requires_grad=False)


class NgramLayer(nn.Module, MambaBase):  # type: ignore[misc]
    """One n-gram layer. Its state lives in a page of the gated delta net of the same decoder layer's kind."""

    def __init__(self, vllm_config: Any, index: int, recurrent: MambaBase, prefix: str) -> None:
        """Build the ``index``-th n-gram layer, from zero.

        Args:
            vllm_config: vLLM's.
            index: selects the hash.
            recurrent: the gated delta net beside it, whose pages have the size that this layer's pages get.
            prefix: full name of the layer.
        """
        nn.Module.__init__(self)
        config = vllm_config.model_config.hf_text_config
        self.hash = NgramHash.of(config, index)
        self.table: NgramTable | None = None
        self.streams, self.width = config.hc_count, config.hidden_size
        self.dilation = config.ngram_size
        self.recurrent = [recurrent]  # in a list: it is no part of this module
        wide = self.streams * self.width
        self.key_proj = linear(config.ple_embed_dim, wide, f"{prefix}.key_proj")
        self.value_proj = linear(config.ple_embed_dim, self.width, f"{prefix}.value_proj")
        self.norm_key, self.norm_query, self.norm_conv = (
            OffsetNorm(wide, config.rms_norm_eps, groups=self.streams) for _ in range(3)
        )
        self.conv1d = Taps(wide, config.ple_conv_kernel_size)
        self.back = window_length(config)
        self.drafts = vllm_config.num_speculative_tokens
        initial = torch.zeros(wide + _ID_WORDS, dtype=torch.int16)
        initial[wide:] = torch.tensor([self.hash.cut]).view(torch.int16)
        self.initial: Tensor
        self.register_buffer("initial", initial, persistent=False)
        self.prefix = prefix
        self.kv_cache: tuple[Tensor, ...] = (torch.tensor([]),)
        vllm_config.compilation_config.static_forward_context[prefix] = self

    def map_table(self, directory: Path, layer: int) -> None:
        """Map this layer's table, that of decoder layer ``layer``, out of the checkpoint in ``directory``."""
        self.table = NgramTable.map(directory, layer, sum(self.hash.primes))

    def forward(self, streams: Tensor, token_ids: Tensor) -> Tensor:
        """Return the streams ``[tokens, h * H]`` with the features of ``token_ids``, int ``[tokens]``, added."""
        entries = ngram_entries(token_ids, self.key_proj.input_size, self.prefix)
        value = self._gated_value(streams, entries)
        return streams + (value + ngram_convolution(self.norm_conv(value), self.prefix))

    def entries(self, token_ids: Tensor) -> Tensor:
        """Look up the table's rows of ``token_ids``, int ``[tokens]``, side by side: bfloat16 ``[tokens, E]``.

        The token ids are kept for the next step.
        """
        window = self._window()
        if window is None:
            return torch.zeros(len(token_ids), self.key_proj.input_size, dtype=torch.bfloat16)
        if self.table is None:
            raise RuntimeError(f"{self.prefix}: the n-gram table was not mapped; load the model from safetensors files")
        kept, wide = self._kept()[..., -_ID_WORDS:], self.initial.numel() - _ID_WORDS
        words = window.line_up(kept, self.initial[wide:], token_ids.long()[:, None].view(torch.int16))
        window.store(kept, words)
        recent = words.view(torch.int64).flatten()[window.recent[:, -1 - self.hash.context :]]
        return self.table[self.hash.rows(recent)].flatten(-2).to(torch.bfloat16)

    def convolution(self, inputs: Tensor) -> Tensor:
        """Convolve ``inputs``, bfloat16 ``[tokens, h * H]``, and keep them for the next step."""
        window = self._window()
        if window is None:
            return torch.zeros_like(inputs)
        kept, wide = self._kept()[..., :-_ID_WORDS], inputs.size(-1)
        words = window.line_up(kept, self.initial[:wide], inputs.view(torch.int16))
        window.store(kept, words)
        return self._convolve(words.view(inputs.dtype), window.recent)

    def _window(self) -> RollingWindow | None:
        metadata = get_forward_context().attn_metadata
        return None if metadata is None else metadata[self.prefix]  # vLLM measures memory before there are pages

    def _kept(self) -> Tensor:
        (buffers,) = self.kv_cache
        return buffers.transpose(1, 2) if is_conv_state_dim_first() else buffers

    def _gated_value(self, streams: Tensor, features: Tensor) -> Tensor:
        agreement = self.norm_key(self.key_proj(features)) * self.norm_query(streams)
        gate = agreement.view(len(streams), self.streams, -1).sum(-1, keepdim=True) / sqrt(self.width)
        gate = gate.abs().clamp_min(1e-6).sqrt() * gate.sign()
        value: Tensor = torch.sigmoid(gate) * self.value_proj(features).unsqueeze(-2)
        return value.flatten(-2)

    def _convolve(self, lined_up: Tensor, recent: Tensor) -> Tensor:
        taps = self.conv1d.weight.squeeze(1).t()
        seen = recent[:, self.back - (len(taps) - 1) * self.dilation :: self.dilation]
        total = torch.zeros(len(seen), lined_up.size(-1))
        for rows, tap in zip(seen.unbind(1), taps, strict=True):
            total.addcmul_(lined_up.index_select(0, rows), tap)
        return silu(total.to(lined_up.dtype))

    def get_state_shape(self) -> tuple[tuple[int, int]]:
        """Return the shape of a window: inputs of the convolution and, in the last words, the token id."""
        shape = (self.back + self.drafts, self.initial.numel())
        return (shape[::-1] if is_conv_state_dim_first() else shape,)

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        """Return the type of the words; what they hold is bfloat16 and int64."""
        return (torch.int16,)

    @property
    def mamba_type(self) -> MambaAttentionBackendEnum:
        """Return what vLLM's prefix caching takes this state for: as in a gated delta net, the first is a window."""
        return MambaAttentionBackendEnum.GDN_ATTN

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        """Return the pages of the gated delta nets.

        vLLM groups layers by equal pages, and the smallest group decides how many groups there are: with pages of its
        own this layer would give every layer of the model a block table.

        Raises:
            ValueError: the state does not fit.
        """
        spec = self.recurrent[0].get_kv_cache_spec(vllm_config)
        rows, words = self.get_state_shape()[0]
        if spec is None or 2 * rows * words > spec.page_size_bytes:
            raise ValueError(f"{self.prefix}: a state of {2 * rows * words} bytes does not fit its neighbours' pages")
        return spec

    def get_attn_backend(self) -> type[RollingWindowBackend]:
        """Return the backend that builds this layer's metadata."""
        return RollingWindowBackend
