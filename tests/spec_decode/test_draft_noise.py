"""Sampled drafts of seeded requests: their own, distributed as q, and without a trace in the request's generator."""

import pytest
import torch

from infernix_plugin.spec_decode.draft_noise import SeededDrafts

Q = torch.tensor([0.5, 0.3, 0.2, 0.0])


def drafts_of(lengths, seeds, slots=1, temperature=1.0):
    rows = len(lengths) * slots
    generators = {row: torch.Generator().manual_seed(seed) for row, seed in seeds.items()}
    source = SeededDrafts()
    source.begin(lengths)
    drafts = torch.full((rows,), 3)
    return source.redraw(drafts, Q.expand(rows, 4), torch.full((rows,), temperature), generators).tolist()


def test_only_seeded_random_requests_are_drawn_again():
    assert drafts_of([5, 5], {1: 7})[0] == 3
    assert drafts_of([5, 5], {1: 7})[1] != 3
    assert drafts_of([5, 5], {1: 7}, temperature=0.0) == [3, 3]


def test_the_batch_does_not_matter():
    alone = drafts_of([50], {0: 7}, slots=3)
    assert drafts_of([9, 50, 3], {0: 8, 1: 7}, slots=3)[3:6] == alone


def test_slots_may_come_one_by_one_or_together():
    together = drafts_of([50], {0: 7}, slots=3)
    source, generator = SeededDrafts(), torch.Generator().manual_seed(7)
    source.begin([50])
    single = [int(source.redraw(torch.tensor([3]), Q.view(1, 4), torch.ones(1), {0: generator})[0]) for _ in range(3)]
    assert single == together


def test_the_sampler_draws_what_it_would_have_drawn():
    generator = torch.Generator().manual_seed(7)
    source = SeededDrafts()
    source.begin([5])
    source.redraw(torch.tensor([3]), Q.view(1, 4), torch.ones(1), {0: generator})
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(7).get_state())


@pytest.mark.parametrize("vary", ["seed", "length", "slot"])
def test_they_follow_q(vary):
    """The chi-square statistic over 6,000 places has 2 degrees of freedom; 13.8 is its 0.999 quantile."""
    count = 6000
    if vary == "seed":
        drawn = drafts_of([5] * count, {row: row for row in range(count)})
    elif vary == "length":
        drawn = drafts_of(list(range(count)), dict.fromkeys(range(count), 7))
    else:
        drawn = drafts_of([5], {0: 7}, slots=count)
    seen = torch.bincount(torch.tensor(drawn), minlength=4)
    assert seen[3] == 0
    expected = Q[:3] * count
    assert float(((seen[:3] - expected) ** 2 / expected).sum()) < 13.8
