"""What min-p, top-k and top-p keep, against plain float64 arithmetic, whether or not a row has to be sorted."""

import numpy as np
import pytest
import torch

from infernix_plugin.spec_decode.truncation import _CANDIDATES, truncate

INF = float("inf")
VOCABULARY = 4 * _CANDIDATES


def kept(row, min_p, top_k, top_p):
    p = np.exp(row.astype(np.float64) - row.max())
    p[p < min_p * p.max()] = 0
    p[p < np.sort(p)[-top_k]] = 0
    if top_p == 1:
        return p > 0
    p /= p.sum()
    best = np.argsort(-p, kind="stable")
    p[best[np.concatenate(([0.0], np.cumsum(p[best])[:-1])) >= top_p]] = 0
    return p > 0


@pytest.mark.parametrize("scale", [0.01, 1.0, 6.0], ids=["flat", "ordinary", "peaked"])
@pytest.mark.parametrize("legal", [3, _CANDIDATES, VOCABULARY])
def test_the_support_is_that_of_the_definition(scale, legal):
    generator = torch.Generator().manual_seed(legal)
    logits = torch.randn(24, VOCABULARY, generator=generator) * scale
    logits[:, torch.randperm(VOCABULARY, generator=generator)[legal:]] = -INF
    limits = [
        (min_p, top_k, top_p)
        for min_p in (0.0, 0.3)
        for top_k in (VOCABULARY, 20, 700)
        for top_p in (1.0, 0.9, 0.5, 1e-6)
    ]
    min_p, top_k, top_p = (torch.tensor(column) for column in zip(*limits, strict=True))
    found = truncate(logits.clone(), min_p, top_k, top_p)
    for row, original, limit in zip(found, logits, limits, strict=True):
        support = kept(original.numpy(), *limit)
        # A token whose share decides to within rounding may be on either side.
        assert int((row.isfinite().numpy() != support).sum()) <= 1, limit
        assert torch.equal(row[row.isfinite()], original[row.isfinite()])


@pytest.mark.parametrize("value", [float("nan"), INF, -INF])
def test_a_row_without_a_distribution_stays_one_and_its_neighbour_is_right(value):
    logits = torch.zeros(3, VOCABULARY)
    logits[0, 5] = logits[2, 6] = 20.0
    logits[1, :] = value
    found = truncate(logits, torch.full((3,), 0.1), None, torch.full((3,), 0.9))
    assert not bool(found[1].amax().isfinite())
    assert [found[row].isfinite().nonzero().squeeze(1).tolist() for row in (0, 2)] == [[5], [6]]


def test_equals_of_the_last_of_top_k_stay():
    logits = torch.tensor([[3.0, 1.0, 1.0, 0.0]])
    assert truncate(logits, None, torch.tensor([2]), None).isfinite().tolist() == [[True, True, True, False]]
