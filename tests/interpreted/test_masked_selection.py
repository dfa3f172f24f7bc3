"""The Triton kernels on CPU tensors, under Triton's interpreter, against plain float64 loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.logits_processors.masked_selection import (
    _BLOCK,
    RowStatus,
    apply_mask,
    masked_argmax,
    masked_candidates,
)

NAN, INF = math.nan, math.inf
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def pack(legal: list[list[bool]], *, extra_words: int = 0) -> torch.Tensor:
    words = (len(legal[0]) + 31) // 32 + extra_words
    rows = []
    for row in legal:
        values = [0] * words
        for token, allowed in enumerate(row):
            values[token // 32] |= allowed << (token % 32)
        rows.append([value - (1 << 32) if value >> 31 else value for value in values])
    return torch.tensor(rows, dtype=torch.int32)


def expected_candidates(logits: list[float], legal: list[bool], k: int) -> tuple[list[int], list[float], RowStatus]:
    """Sort the legal tokens by logit and id: what the kernels must agree with."""
    seen = [(token, value) for token, value in enumerate(logits) if legal[token]]
    if any(math.isnan(value) or value == INF for _, value in seen):
        return [-1] * k, [-INF] * k, RowStatus.NON_FINITE
    best = sorted(((-value, token) for token, value in seen if value > -INF))[:k]
    ids = [token for _, token in best] + [-1] * (k - len(best))
    values = [-value for value, _ in best] + [-INF] * (k - len(best))
    return ids, values, RowStatus.READY if best else RowStatus.EMPTY


def check(logits: torch.Tensor, legal: list[list[bool]], k: int, *, extra_words: int = 0) -> None:
    masks = pack(legal, extra_words=extra_words)
    before = logits.clone()
    expected = [
        expected_candidates(row.double().tolist(), allowed, k) for row, allowed in zip(logits, legal, strict=True)
    ]
    found = masked_candidates(logits, masks, k)
    assert found.token_ids.tolist() == [ids for ids, _, _ in expected]
    assert found.logits.tolist() == [values for _, values, _ in expected]
    assert found.status.tolist() == [status for _, _, status in expected]
    single = masked_argmax(logits, masks)
    assert single.token_ids.tolist() == [ids[0] for ids, _, _ in expected]
    assert single.status.tolist() == found.status.tolist()
    torch.testing.assert_close(logits, before, rtol=0, atol=0, equal_nan=True)  # selection writes nothing back


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 100, _BLOCK, _BLOCK + 1, 2 * _BLOCK + 777])
def test_random_rows(dtype, vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(3, vocab, generator=generator).to(dtype)
    legal = (torch.rand(3, vocab, generator=generator) < 0.4).tolist()
    check(logits, legal, 16)


@given(st.data())
@settings(max_examples=60)
def test_small_rows_with_every_kind_of_value(data):
    vocab = data.draw(st.integers(1, 70))
    value = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e30, -1e30, -INF, INF, NAN])
    logits = data.draw(st.lists(st.lists(value, min_size=vocab, max_size=vocab), min_size=1, max_size=3))
    legal = [data.draw(st.lists(st.booleans(), min_size=vocab, max_size=vocab)) for _ in logits]
    check(torch.tensor(logits), legal, data.draw(st.integers(1, 5)), extra_words=data.draw(st.integers(0, 2)))


@pytest.mark.parametrize("k", [1, 16])
def test_ties_across_blocks_go_to_the_smaller_id(k):
    vocab = 3 * _BLOCK
    logits = torch.zeros(1, vocab)
    legal = [[token % 5 == 3 for token in range(vocab)]]
    check(logits, legal, k)


def test_the_best_illegal_token_is_never_chosen_and_its_value_is_of_no_consequence():
    for poison in (INF, NAN, 1e30):
        logits = torch.tensor([[poison, 1.0, 2.0, poison]])
        check(logits, [[False, True, True, False]], 2)


@pytest.mark.parametrize("poison", [NAN, INF])
@pytest.mark.parametrize("place", [0, _BLOCK - 1, _BLOCK, 2 * _BLOCK + 5])
def test_a_broken_legal_logit_in_any_block_is_reported(poison, place):
    logits = torch.zeros(2, 2 * _BLOCK + 6)
    logits[1, place] = poison
    legal = [[True] * logits.shape[1]] * 2
    check(logits, legal, 3)


def test_empty_rows_and_insufficient_support():
    logits = torch.tensor([[1.0, 2.0, 3.0], [-INF, -INF, 5.0], [1.0, 2.0, -INF]])
    check(logits, [[False] * 3, [True, True, False], [True, False, True]], 4)


def test_rows_that_are_not_adjacent_in_memory():
    wide = torch.randn(4, 2 * _BLOCK, generator=torch.Generator().manual_seed(5))
    logits = wide[::2, : _BLOCK + 9]
    legal = (torch.rand(2, _BLOCK + 9, generator=torch.Generator().manual_seed(6)) < 0.1).tolist()
    check(logits, legal, 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [5, 32, _BLOCK + 40])
def test_apply_mask_changes_illegal_logits_of_its_rows_only(dtype, vocab):
    generator = torch.Generator().manual_seed(vocab)
    wide = torch.randn(5, vocab + 3, generator=generator).to(dtype)
    before = wide.clone()
    legal = torch.rand(3, vocab, generator=generator) < 0.5
    apply_mask(wide[:, :vocab], pack(legal.tolist(), extra_words=1), torch.tensor([4, -1, 0]))
    expected = before.clone()
    expected[4, :vocab][~legal[0]] = -INF
    expected[0, :vocab][~legal[2]] = -INF
    assert torch.equal(wide, expected)


def test_nothing_to_do():
    logits = torch.zeros(0, 8)
    masks = torch.zeros(0, 1, dtype=torch.int32)
    apply_mask(logits, masks, torch.zeros(0, dtype=torch.int32))
    assert masked_argmax(logits, masks).token_ids.shape == (0,)


def test_wrong_arguments_are_refused():
    logits, masks = torch.zeros(2, 40), torch.zeros(2, 2, dtype=torch.int32)
    for bad_logits, bad_masks, k in [
        (logits.long(), masks, 1),
        (logits[0], masks, 1),
        (logits.t(), masks, 1),
        (logits, masks.long(), 1),
        (logits, masks[:, :1], 1),
        (logits, masks[:1], 1),
        (logits, masks, 0),
    ]:
        with pytest.raises(ValueError, match=r"must be|need as many"):
            masked_candidates(bad_logits, bad_masks, k)
    with pytest.raises(ValueError, match="rows must be 2 integers"):
        apply_mask(logits, masks, torch.zeros(1, dtype=torch.int32))
