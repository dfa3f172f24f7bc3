"""Root-mean-square norms whose weight is an offset from one, over the whole width or group by group."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm


class OffsetNorm(nn.Module):
    """``x / rms(x) * (1 + weight)`` in float32, rounded to the type of ``x`` once."""

    def __init__(self, width: int, eps: float, *, groups: int = 1) -> None:
        """``groups``: how many equal parts of the last dimension are each normed by themselves."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.groups, self.eps = groups, eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last dimension of ``x``."""
        width = x.size(-1) // self.groups
        parts = rms_norm(x.float().reshape(*x.shape[:-1], self.groups, width), (width,), eps=self.eps)
        normed: Tensor = parts.flatten(-2) * (1.0 + self.weight.float())
        return normed.to(x.dtype)
