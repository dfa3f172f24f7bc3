"""Gated residual streams: instead of one residual stream there are ``h``, and gates say how blocks use them.

A token's streams stand side by side, ``[tokens, h * H]``. With ``n`` the streams, each normed by itself,

    input  = mean over streams of  sigmoid(up(silu(down(n) / h))) * n        [tokens, H]
    spread = 2 * sigmoid(inject(n) / h)                                      [tokens, h]

a block reads ``input``, and stream ``i`` becomes ``stream + spread[i] * block(input)``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, ReplicatedLinear
from vllm.model_executor.models.utils import WeightsMapper

from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm

STACKED_IN_MIXERS = WeightsMapper(
    orig_to_new_stacked={
        ".input_mix_weight_down": (".down_inject_proj", 0),
        ".block_inject_weight": (".down_inject_proj", 1),
    }
)
"""Which tensors of a checkpoint stand together in a mixer."""


def linear(inputs: int, outputs: int, prefix: str) -> ReplicatedLinear:
    """Return a projection without bias that every rank holds as a whole and that returns its result alone."""
    return ReplicatedLinear(inputs, outputs, bias=False, return_bias=False, prefix=prefix)


class StreamMixer(nn.Module):
    """Merges the streams into the input of one block and spreads the block's output over them."""

    def __init__(self, config: Any, prefix: str, *, final: bool = False) -> None:
        """``final``: the mixer in front of the output head, which spreads nothing."""
        super().__init__()
        self.streams = config.hc_count
        wide = self.streams * config.hidden_size
        self.hc_norm = OffsetNorm(wide, config.rms_norm_eps, groups=self.streams)
        self.sizes = [config.hc_lowrank] if final else [config.hc_lowrank, self.streams]
        # Both read the same, so they are one product.
        self.down_inject_proj = MergedColumnParallelLinear(
            wide, self.sizes, bias=False, return_bias=False, prefix=f"{prefix}.down_inject_proj", disable_tp=True
        )
        self.input_mix_weight_up = linear(config.hc_lowrank, wide, f"{prefix}.input_mix_weight_up")

    def merge(self, streams: Tensor) -> Tensor:
        """Return the merged input ``[tokens, H]`` of ``streams`` ``[tokens, h * H]``."""
        normed = self.hc_norm(streams)
        return self._merged(normed, self.down_inject_proj(normed))

    def around(self, block: Any, streams: Tensor) -> Tensor:
        """Return the streams ``[tokens, h * H]`` after ``block``, a function of ``[tokens, H]`` to the same shape."""
        normed = self.hc_norm(streams)
        down, inject = self.down_inject_proj(normed).split(self.sizes, dim=-1)
        spread: Tensor = 2 * torch.sigmoid(inject / self.streams)
        added: Tensor = block(self._merged(normed, down))
        return streams + (added.unsqueeze(-2) * spread.unsqueeze(-1)).view_as(streams)

    def _merged(self, normed: Tensor, down: Tensor) -> Tensor:
        gate: Tensor = torch.sigmoid(self.input_mix_weight_up(silu(down / self.streams)))
        return (gate * normed).view(len(normed), self.streams, -1).mean(-2)
