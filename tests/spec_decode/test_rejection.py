"""The sampler of a step against the theorem in float64, and the theorem against the target distribution."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger, StepProposal, mark_one_hot
from infernix_plugin.spec_decode.rejection import Layout, Targets, draw, output_law, verify

SAMPLES = 40_000
LIMIT = 10.83
"""Chi-square with one degree of freedom at p = 0.001."""


def distribution(weights):
    values = np.asarray(weights, dtype=np.float64)
    return values / values.sum()


def one_hot(token, size):
    return np.eye(size)[token]


def targets_of(rows, batch):
    """Random requests, each with the same rows."""
    weights = torch.tensor(np.asarray(rows), dtype=torch.float32).repeat(batch, 1)
    count = len(weights)
    return Targets(
        best=weights.argmax(1),
        weights=weights,
        totals=weights.sum(1),
        weights_row=torch.arange(count),
        greedy=torch.zeros(batch, dtype=torch.bool),
        sound=torch.ones(count, dtype=torch.bool),
    )


def sampled_law(rows, drafts, proposal, batch=SAMPLES):
    """Empirical law of one verification, all samples as requests of one batch."""
    layout = Layout.of([len(drafts)] * batch)
    uniforms = torch.rand(len(layout.request), dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    verdict = verify(layout, targets_of(rows, batch), torch.tensor(drafts).repeat(batch), proposal(batch), uniforms)
    outputs = zip(verdict.accepted.tolist(), verdict.token.tolist(), strict=True)
    law = {}
    for accepted, token in outputs:
        key = (*drafts[:accepted], token)
        law[key] = law.get(key, 0) + 1 / batch
    return law


weights = st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(any).map(distribution)


@settings(max_examples=200)
@given(st.lists(weights, min_size=3, max_size=3), st.lists(weights, min_size=2, max_size=2))
def test_the_theorem_keeps_the_target_distribution(targets, proposals):
    """Summed over the drafts that q proposes, the first output token has the law p."""
    first = np.zeros(4)
    for drafts in itertools.product(*(np.flatnonzero(q) for q in proposals)):
        chance = proposals[0][drafts[0]] * proposals[1][drafts[1]]
        for output, probability in output_law(targets, proposals, drafts).items():
            first[output[0]] += chance * probability
    np.testing.assert_allclose(first, targets[0], atol=1e-12)


ROWS = [distribution(row) for row in ([4, 3, 0, 1], [0, 2, 2, 4], [1, 1, 0, 2])]
Q = [distribution(row) for row in ([1, 1, 1, 1], [0, 1, 3, 0])]


@pytest.mark.parametrize("drafts", list(itertools.product(range(4), (1, 2))))
@pytest.mark.parametrize("kind", ["one-hot", "dense", "sparse"])
def test_every_outcome_has_its_probability(kind, drafts):
    """Illegal at each position, rejection at each position, and the token behind accepted drafts."""
    drafts = list(drafts)

    def proposal(batch):
        if kind == "one-hot":
            return StepProposal.certain(2 * batch)
        dense = torch.tensor(np.asarray(Q), dtype=torch.float32)
        if kind == "dense":
            return StepProposal.dense(dense.repeat(batch, 1))
        order = torch.tensor([3, 1, 0, 2]).expand(2, 4)
        sparse = Proposal(dense.gather(1, order).repeat(batch, 1, 1), order.repeat(batch, 1, 1))
        ledger = ProposalLedger()
        names = [str(row) for row in range(batch)]
        ledger.record(names, sparse)
        return ledger.step(names, [2] * batch, {})

    q = [one_hot(draft, 4) for draft in drafts] if kind == "one-hot" else Q
    law = output_law(ROWS, q, drafts)
    batch = SAMPLES // 10
    found = sampled_law(ROWS, drafts, proposal, batch)
    assert set(found) <= set(law)
    for output, probability in law.items():
        tolerance = 5 * np.sqrt(probability * (1 - probability) / batch) + 1e-6
        assert abs(found.get(output, 0) - probability) < tolerance, output


def counter_example(keep):
    """p(a) = p(b) = 1/2, q(a) = q(x) = 1/2 and x illegal; the chi-square of a and b against one half each."""
    generator = torch.Generator().manual_seed(3)
    drafts = torch.where(torch.rand(SAMPLES, generator=generator) < 0.5, 0, 2)
    if not keep:
        drafts[drafts == 2] = -1
    q = torch.tensor([[0.5, 0.0, 0.5]]).repeat(SAMPLES, 1)
    layout = Layout.of([1] * SAMPLES)
    uniforms = torch.rand(2 * SAMPLES, dtype=torch.float64, generator=generator)
    rows = [distribution([1, 1, 0]), distribution([1, 1, 0])]
    verdict = verify(layout, targets_of(rows, SAMPLES), drafts, StepProposal.dense(q), uniforms)
    first = torch.where(verdict.accepted > 0, drafts, verdict.token)
    a = int((first == 0).sum())
    assert a + int((first == 1).sum()) == SAMPLES
    return a / SAMPLES, 4 * (a - SAMPLES / 2) ** 2 / SAMPLES


def test_a_kept_illegal_draft_leaves_the_distribution_right():
    assert counter_example(keep=True)[1] < LIMIT


def test_dropping_the_illegal_draft_is_biased():
    """Negative control: what vLLM does. The position is drawn from p although its draft was refused for its value."""
    share, chi_square = counter_example(keep=False)
    assert share == pytest.approx(0.75, abs=0.01)
    assert chi_square > LIMIT * 100


def test_a_proposal_follows_its_request_and_unknown_drafts_are_not_verified():
    ledger = ProposalLedger()
    ledger.record(["x", "y"], Proposal(torch.eye(3).unsqueeze(1)))
    ledger.record(["z"], None)
    step = ledger.step(["new", "z", "y", "x"], [1, 1, 2, 1], {})
    assert step.known.tolist() == [False, True, True, False, True]
    assert step.one_hot.tolist() == [False, True, False, False, False]
    assert step.chances(torch.tensor([0, 0, 1, 0, 1])).tolist() == [1, 1, 1, 1, 0]


def test_the_engine_core_marks_replaced_drafts():
    class Output:
        pass

    output = Output()
    mark_one_hot(output, "x", 0b10)
    ledger = ProposalLedger()
    ledger.record(["x"], Proposal(torch.full((1, 2, 2), 0.5)))
    assert ledger.step(["x"], [2], output.infernix_one_hot).one_hot.tolist() == [False, True]


def test_a_bad_row_counts_only_where_verification_reaches_it():
    rows = [distribution([1, 0, 0]), distribution([1, 1, 1])]
    targets = targets_of(rows, 2)
    targets.sound[1::2] = False
    verdict = verify(
        Layout.of([1, 1]), targets, torch.tensor([0, 1]), StepProposal.certain(2), torch.full((4,), 0.5).double()
    )
    assert verdict.failed.tolist() == [True, False]
    assert verdict.accepted.tolist() == [1, 0]
    assert verdict.token[1] == 0


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_weight_of_zero_is_never_drawn(uniform):
    weights = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    tokens = draw(weights, torch.full((2,), uniform, dtype=torch.float64))
    assert bool((weights.gather(1, tokens.unsqueeze(1)) > 0).all())
