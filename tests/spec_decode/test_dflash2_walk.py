"""The walk of DFlash2 against the joint distribution that its scores describe, by statistics and by hand."""

import math
from collections import Counter
from itertools import product

import pytest
import torch

from infernix_plugin.spec_decode.dflash2 import _noise, walk

SLOTS, CANDIDATES = 2, 4
ROWS = 100_000
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    scores = torch.randn(1, SLOTS, CANDIDATES, CANDIDATES)
    scores[:, 0] = scores[:, 0, :1]
    candidates = torch.tensor([[[7, 3, 11, 5], [3, 2, 9, 7]]])
    return scores, candidates


def softmax(row, temperature):
    weights = [math.exp(value / temperature) for value in row]
    return [weight / sum(weights) for weight in weights]


def joint(scores, candidates):
    """The chance of every pair of drafts, by the definition of the walk."""
    chances = {}
    first = softmax(scores[0, 0, 0].tolist(), TEMPERATURE)
    for a, b in product(range(CANDIDATES), repeat=2):
        second = softmax(scores[0, 1, a].tolist(), TEMPERATURE)
        chances[int(candidates[0, 0, a]), int(candidates[0, 1, b])] = first[a] * second[b]
    return chances


def test_drafts_have_the_joint_distribution_of_the_scores(model) -> None:
    scores, candidates = model
    torch.manual_seed(5)
    many = candidates.expand(ROWS, -1, -1)
    drafts, _ = walk(
        scores.expand(ROWS, -1, -1, -1), many, torch.full((ROWS,), TEMPERATURE), torch.empty(many.shape).exponential_()
    )
    seen = Counter(map(tuple, drafts.tolist()))
    expected = joint(scores, candidates)
    assert set(seen) <= set(expected)
    statistic = sum((seen[pair] - ROWS * chance) ** 2 / (ROWS * chance) for pair, chance in expected.items())
    assert statistic < 45  # 15 degrees of freedom: passed once in 10,000 by the right distribution


def test_q_is_the_row_of_the_draft_before(model) -> None:
    scores, candidates = model
    torch.manual_seed(6)
    many = candidates.expand(64, -1, -1)
    drafts, proposal = walk(
        scores.expand(64, -1, -1, -1), many, torch.full((64,), TEMPERATURE), torch.empty(many.shape).exponential_()
    )
    assert len(set(drafts[:, 0].tolist())) > 1
    assert proposal.candidates is not None
    assert torch.equal(proposal.candidates, many)
    assert proposal.one_hot is not None
    assert not proposal.one_hot.any()
    for row, (first, _) in enumerate(drafts.tolist()):
        before = candidates[0, 0].tolist().index(first)
        assert proposal.probabilities[row, 0].tolist() == pytest.approx(softmax(scores[0, 0, 0].tolist(), TEMPERATURE))
        assert proposal.probabilities[row, 1].tolist() == pytest.approx(
            softmax(scores[0, 1, before].tolist(), TEMPERATURE)
        )


def test_greedy_and_broken_rows_take_the_best_and_are_one_hot(model) -> None:
    scores, candidates = model
    scores, candidates = scores.repeat(3, 1, 1, 1), candidates.expand(3, -1, -1)
    scores[2, 1] = math.nan
    noise = torch.full(candidates.shape, 1.0)
    drafts, proposal = walk(scores, candidates, torch.tensor([0.0, TEMPERATURE, TEMPERATURE]), noise)
    first = max(range(CANDIDATES), key=scores[0, 0, 0].tolist().__getitem__)
    second = max(range(CANDIDATES), key=scores[0, 1, first].tolist().__getitem__)
    assert drafts[0].tolist() == [candidates[0, 0, first], candidates[0, 1, second]]
    assert proposal.one_hot is not None
    assert proposal.one_hot.tolist() == [[True, True], [False, False], [False, True]]


def test_seeded_noise_depends_on_seed_and_position_and_leaves_the_sampler_alone() -> None:
    def draw(seeds, positions):
        generators = {row: torch.Generator().manual_seed(seed) for row, seed in seeds.items()}
        states = [generator.get_state() for generator in generators.values()]
        noise = _noise(torch.Size((len(positions), 2, 3)), torch.tensor(positions), generators)
        assert all(map(torch.equal, states, (generator.get_state() for generator in generators.values())))
        return noise

    one, other = draw({0: 4, 1: 5, 2: 4}, [9, 9, 10]), draw({1: 4}, [9, 9])
    assert torch.equal(one[0], other[1])
    assert not any(torch.equal(one[a], one[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert not torch.equal(one[0], other[0])
    assert not torch.equal(one[0], torch.empty(2, 3).exponential_(generator=torch.Generator().manual_seed(4)))
