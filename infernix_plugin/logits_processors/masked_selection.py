"""Mask application and masked selection on a GPU, as Triton kernels.

Three operations on a batch of logits and the mask rows that belong to it. Bit ``id % 32`` of word ``id // 32`` of a
mask row is set when the token is legal. Selection never writes masked logits back to memory: the mask is read beside
the logits, in blocks of the vocabulary, and a second kernel reduces the blocks of a row.

A token is *supported* when it is legal and its logit is finite. A legal ``-inf`` is a token of probability zero and
supports nothing; a legal NaN or ``+inf`` makes the whole row :attr:`RowStatus.NON_FINITE`. What an illegal token's
logit holds is of no consequence.

The kernels run on any Triton target, and on CPU tensors under Triton's interpreter (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

_BLOCK = 4096
"""Tokens that one program reads; a multiple of 32."""

_NO_TOKEN = tl.constexpr(2**31 - 1)
"""Larger than any token id: what a minimum over ids starts from."""


class RowStatus(IntEnum):
    """What a selection found in one row."""

    READY = 0
    EMPTY = 1
    """No supported token."""
    NON_FINITE = 2
    """A legal token's logit is NaN or ``+inf``."""


class MaskedArgmax(NamedTuple):
    """The best legal token of each row."""

    token_ids: torch.Tensor
    """int64 ``[rows]``; -1 where the status is not READY."""
    status: torch.Tensor
    """int32 ``[rows]`` of :class:`RowStatus`."""


class MaskedCandidates(NamedTuple):
    """The best legal tokens of each row, best first."""

    token_ids: torch.Tensor
    """int64 ``[rows, k]``; -1 behind the last supported token."""
    logits: torch.Tensor
    """float32 ``[rows, k]``; ``-inf`` behind the last supported token."""
    status: torch.Tensor
    """int32 ``[rows]`` of :class:`RowStatus`."""


def apply_mask(logits: torch.Tensor, masks: torch.Tensor, rows: torch.Tensor) -> None:
    """Write ``-inf`` over the logits of illegal tokens, in place.

    Args:
        logits: float ``[batch, vocab]``, last dimension contiguous.
        masks: int32 ``[n, ceil(vocab / 32) or more]``.
        rows: int ``[n]``, the row of ``logits`` that each mask belongs to; negative skips that mask.

    Raises:
        ValueError: shapes, dtypes or strides are not as said.
    """
    _check(logits, masks)
    if rows.shape != (masks.shape[0],) or rows.is_floating_point():
        raise ValueError(f"rows must be {masks.shape[0]} integers, not {tuple(rows.shape)} of {rows.dtype}")
    if not masks.shape[0]:
        return
    vocab = logits.shape[1]
    _apply_mask_kernel[(masks.shape[0], triton.cdiv(vocab, _BLOCK))](
        logits, logits.stride(0), masks, masks.stride(0), rows, vocab, block_size=_BLOCK
    )


def masked_argmax(logits: torch.Tensor, masks: torch.Tensor) -> MaskedArgmax:
    """Return each row's legal token of the largest logit; among equals the smallest id.

    Args:
        logits: float ``[rows, vocab]``, last dimension contiguous.
        masks: int32 ``[rows, ceil(vocab / 32) or more]``.

    Raises:
        ValueError: shapes, dtypes or strides are not as said.
    """
    token_ids, _, status = _select(logits, masks, 1)
    return MaskedArgmax(token_ids[:, 0], status)


def masked_candidates(logits: torch.Tensor, masks: torch.Tensor, k: int) -> MaskedCandidates:
    """Return each row's ``k`` legal tokens of the largest logits, best first; among equals the smaller id first.

    Args:
        logits: float ``[rows, vocab]``, last dimension contiguous.
        masks: int32 ``[rows, ceil(vocab / 32) or more]``.
        k: candidates a row, at least 1.

    Raises:
        ValueError: shapes, dtypes, strides or ``k`` are not as said.
    """
    return MaskedCandidates(*_select(logits, masks, k))


def _select(logits: torch.Tensor, masks: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _check(logits, masks)
    if masks.shape[0] != logits.shape[0]:
        raise ValueError(f"{logits.shape[0]} rows of logits need as many masks, not {masks.shape[0]}")
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    rows, vocab = logits.shape
    blocks = triton.cdiv(vocab, _BLOCK)
    shape, device = (rows, blocks, k), logits.device
    part_ids = torch.empty(shape, dtype=torch.int32, device=device)
    part_logits = torch.empty(shape, dtype=torch.float32, device=device)
    part_flags = torch.empty((rows, blocks), dtype=torch.int32, device=device)
    token_ids = torch.empty((rows, k), dtype=torch.int64, device=device)
    best = torch.empty((rows, k), dtype=torch.float32, device=device)
    status = torch.empty(rows, dtype=torch.int32, device=device)
    if rows:
        _select_in_block_kernel[(rows, blocks)](
            logits,
            logits.stride(0),
            masks,
            masks.stride(0),
            part_ids,
            part_logits,
            part_flags,
            vocab,
            k,
            block_size=_BLOCK,
        )
        _select_in_row_kernel[(rows,)](
            part_ids,
            part_logits,
            part_flags,
            token_ids,
            best,
            status,
            blocks,
            k,
            parts_padded=triton.next_power_of_2(blocks * k),
            blocks_padded=triton.next_power_of_2(blocks),
        )
    return token_ids, best, status


def _check(logits: torch.Tensor, masks: torch.Tensor) -> None:
    if logits.ndim != 2 or not logits.is_floating_point() or logits.stride(1) != 1:
        raise ValueError("logits must be floating point [rows, vocab] with a contiguous last dimension")
    words = (logits.shape[1] + 31) // 32
    if masks.ndim != 2 or masks.dtype != torch.int32 or masks.stride(1) != 1 or masks.shape[1] < words:
        raise ValueError(f"masks must be int32 [rows, {words} or more] with a contiguous last dimension")
    if masks.device != logits.device:
        raise ValueError(f"masks are on {masks.device}, logits on {logits.device}")


@triton.jit  # type: ignore[untyped-decorator]
def _legal(mask_row: Any, token: Any, inside: Any) -> Any:
    word = tl.load(mask_row + token // 32, mask=inside, other=0)
    return inside & (((word >> (token % 32)) & 1) == 1)


@triton.jit  # type: ignore[untyped-decorator]
def _apply_mask_kernel(
    logits: Any, logits_stride: Any, masks: Any, masks_stride: Any, rows: Any, vocab: Any, block_size: tl.constexpr
) -> None:
    # 64-bit rows: a batch of some thousand rows of a large vocabulary has more than 2**31 logits.
    mask = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + mask).to(tl.int64)
    if row >= 0:
        token = tl.program_id(1) * block_size + tl.arange(0, block_size)
        inside = token < vocab
        legal = _legal(masks + mask * masks_stride, token, inside)
        tl.store(logits + row * logits_stride + token, -float("inf"), mask=inside & (legal == 0))


@triton.jit  # type: ignore[untyped-decorator]
def _select_in_block_kernel(
    logits: Any,
    logits_stride: Any,
    masks: Any,
    masks_stride: Any,
    part_ids: Any,
    part_logits: Any,
    part_flags: Any,
    vocab: Any,
    k: Any,
    block_size: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * block_size + tl.arange(0, block_size)
    legal = _legal(masks + row * masks_stride, token, token < vocab)
    value = tl.load(logits + row * logits_stride + token, mask=legal, other=-float("inf")).to(tl.float32)
    # A NaN is the one value that differs from itself; it must not take part in a maximum.
    broken = (value != value) | (value == float("inf"))
    tl.store(part_flags + row * tl.num_programs(1) + block, tl.max(broken.to(tl.int32), axis=0))
    value = tl.where(broken, -float("inf"), value)
    out = (row * tl.num_programs(1) + block) * k
    for place in range(k):
        best = tl.max(value, axis=0)
        chosen = tl.min(tl.where(value == best, token, _NO_TOKEN), axis=0)  # of no meaning once best is -inf
        tl.store(part_ids + out + place, chosen)
        tl.store(part_logits + out + place, best)
        value = tl.where(token == chosen, -float("inf"), value)


@triton.jit  # type: ignore[untyped-decorator]
def _select_in_row_kernel(
    part_ids: Any,
    part_logits: Any,
    part_flags: Any,
    token_ids: Any,
    best_logits: Any,
    status: Any,
    blocks: Any,
    k: Any,
    parts_padded: tl.constexpr,
    blocks_padded: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, blocks_padded)
    flags = tl.load(part_flags + row * blocks + block, mask=block < blocks, other=0)
    broken = tl.max(flags, axis=0)
    part = tl.arange(0, parts_padded)
    inside = part < blocks * k
    token = tl.load(part_ids + row * blocks * k + part, mask=inside, other=_NO_TOKEN)
    value = tl.load(part_logits + row * blocks * k + part, mask=inside, other=-float("inf"))
    value = tl.where(broken > 0, -float("inf"), value)
    found = 0
    for place in range(k):
        best = tl.max(value, axis=0)
        supported = best > -float("inf")
        chosen = tl.min(tl.where(value == best, token, _NO_TOKEN), axis=0)
        tl.store(token_ids + row * k + place, tl.where(supported, chosen, -1).to(tl.int64))
        tl.store(best_logits + row * k + place, best)
        value = tl.where(token == chosen, -float("inf"), value)
        found += tl.where(supported, 1, 0)
    tl.store(status + row, tl.where(broken > 0, 2, tl.where(found > 0, 0, 1)))
