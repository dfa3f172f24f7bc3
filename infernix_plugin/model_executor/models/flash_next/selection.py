"""Which tokens a query sees: the blocks whose keys fit best, and the open end of the context.

A query at position ``p`` may choose among the ``(p + 1) // c`` complete blocks; it takes ``k`` of them, and always sees
the at most ``c - 1`` tokens behind them. The score of a block is the same for all attention heads:

    score = sum over index heads of  relu(<index query, block key>) / sqrt(d)        in float32
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor


def best_blocks(queries: Tensor, keys: Tensor, complete: Tensor, k: int) -> Tensor:
    """Choose ``k`` blocks per query, or all there are.

    Args:
        queries: ``[R, q, heads, d]``.
        keys: ``[R, blocks, d]``.
        complete: int64 ``[R, q]``, how many of the blocks each query may see.
        k: how many it takes.

    Returns:
        int64 ``[R, q, min(k, blocks)]``; numbers that are not below ``complete`` stand for none.
    """
    if bool((complete <= k).all()):
        count = int(complete.max()) if complete.numel() else 0
        return torch.arange(count).expand(*complete.shape, count)
    rows, count, heads, width = queries.shape
    fit = queries.float().flatten(1, 2) @ keys.float().transpose(1, 2)
    scores = fit.relu_().view(rows, count, heads, -1).sum(2).div_(sqrt(width))
    scores.masked_fill_(torch.arange(keys.size(1)) >= complete[..., None], -torch.inf)
    return scores.topk(min(k, keys.size(1)), sorted=False).indices


def tokens_of(blocks: Tensor, positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """List the positions that queries see.

    Args:
        blocks: int64 ``[R, q, k]``, from ``best_blocks``.
        positions: int64 ``[R, q]``, of the queries.
        size: ``c``, tokens of a block.

    Returns:
        int64 and bool ``[R, q, k * c + c - 1]``: positions, and which of them count. Those that do not are 0.
    """
    complete = (positions + 1) // size
    chosen = (blocks[..., None] * size + torch.arange(size)).flatten(-2)
    open_end = complete[..., None] * size + torch.arange(size - 1)
    counts = torch.cat(
        [(blocks < complete[..., None]).repeat_interleave(size, dim=-1), open_end <= positions[..., None]], dim=-1
    )
    return torch.cat([chosen, open_end], dim=-1).where(counts, 0), counts


def visible(blocks: Tensor, positions: Tensor, size: int, length: int) -> Tensor:
    """Return the same as a mask, bool ``[R, q, length]``: which tokens of a context of ``length`` queries see."""
    tokens, counts = tokens_of(blocks, positions, size)
    mask = torch.zeros(*positions.shape, length + 1, dtype=torch.bool)
    return mask.scatter_(-1, tokens.where(counts, length), True)[..., :length]
