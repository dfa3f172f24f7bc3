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
from vllm.model_executor.layers.linear import ReplicatedLinear

from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm


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
        self.input_mix_weight_down = linear(wide, config.hc_lowrank, f"{prefix}.input_mix_weight_down")
        self.input_mix_weight_up = linear(config.hc_lowrank, wide, f"{prefix}.input_mix_weight_up")
        self.block_inject_weight = None if final else linear(wide, self.streams, f"{prefix}.block_inject_weight")

    def merge(self, streams: Tensor) -> Tensor:
        """Return the merged input ``[tokens, H]`` of ``streams`` ``[tokens, h * H]``."""
        return self._merged(self.hc_norm(streams))

    def around(self, block: Any, streams: Tensor) -> Tensor:
        """Return the streams ``[tokens, h * H]`` after ``block``, a function of ``[tokens, H]`` to the same shape."""
        normed = self.hc_norm(streams)
        assert self.block_inject_weight is not None
        spread: Tensor = 2 * torch.sigmoid(self.block_inject_weight(normed) / self.streams)
        added: Tensor = block(self._merged(normed))
        return streams + (added.unsqueeze(-2) * spread.unsqueeze(-1)).view_as(streams)

    def _merged(self, normed: Tensor) -> Tensor:
        gate: Tensor = torch.sigmoid(self.input_mix_weight_up(silu(self.input_mix_weight_down(normed) / self.streams)))
        return (gate * normed).view(len(normed), self.streams, -1).mean(-2)
