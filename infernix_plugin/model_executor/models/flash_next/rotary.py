"""Rotary positions on the first part of every head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Rotary(nn.Module):
    """Rotates pairs ``(x[i], x[i + r/2])`` of the first ``r`` entries by the angle ``position / theta^(2i/r)``.

    For text the three position rows of the multimodal variant are equal, so one row says everything.
    """

    def __init__(self, config: Any) -> None:
        """Read base and share of rotated entries off a ``Qwen4ExpTextConfig``.

        Raises:
            ValueError: a scaled variant of rotary positions, which this does not implement.
        """
        super().__init__()
        parameters = config.rope_parameters
        kind = parameters.get("rope_type", "default")
        if kind != "default":
            raise ValueError(f"Flash-Next on the CPU has no rotary positions of type {kind!r}, only 'default'")
        width = int(config.head_dim * parameters.get("partial_rotary_factor", 1.0))
        powers = torch.arange(0, width, 2, dtype=torch.float32) / width
        frequencies = 1.0 / parameters["rope_theta"] ** powers
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return ``x``, ``[tokens, heads, width]``, rotated to ``positions``, int ``[tokens]``."""
        angles = positions[:, None].float() * self.frequencies
        cos, sin = (part.to(x.dtype)[:, None].repeat(1, 1, 2) for part in (angles.cos(), angles.sin()))
        turned, kept = x.tensor_split([cos.size(-1)], dim=-1)
        first, second = turned.chunk(2, dim=-1)
        return torch.cat([turned * cos + torch.cat([-second, first], dim=-1) * sin, kept], dim=-1)
