"""The rejection sampler of a step: options at the hypothetical prefix, seeds, log-probabilities and failed rows."""

import math

import numpy as np
import pytest
import torch

from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure
from tests.spec_decode.sampler_step import SIZE, noise, options, random_options, run, softmax

SAMPLES = 20_000
NAN, INF = float("nan"), float("inf")


def assert_law(tokens, law):
    counts = np.bincount(tokens, minlength=len(law))
    assert not counts[law == 0].any()
    possible = law > 0
    expected = law[possible] * len(tokens)
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    # The quantile of p = 0.001, by Wilson and Hilferty (1931).
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.0902 * math.sqrt(2 / (9 * freedom))) ** 3


def test_ragged_greedy_requests_keep_drafts_up_to_the_first_that_is_not_best():
    logits = noise(7)
    best = logits.argmax(1).tolist()
    wrong = (best[5] + 1) % SIZE
    result = run([best[:2], [], [best[4], wrong]], logits, options(3))
    assert result.tokens == [best[:3], [best[3]], best[4:6]]


def test_ties_go_to_the_smaller_id():
    logits = torch.zeros(2, 5000)
    logits[:, [777, 778, 4321]] = 3.0
    assert run([[777]], logits, options(1)).tokens == [[777, 777]]


def test_penalties_see_the_drafts_before_a_row():
    logits = noise(4, seed=3)
    prompt, written = [0, 5], [2]
    expected, path = [], []
    for row in logits.double().numpy():
        before = written + path
        penalised = row.copy()
        for token in range(SIZE):
            if token in prompt or token in before:
                penalised[token] *= 1 / 1.5 if penalised[token] > 0 else 1.5
            penalised[token] -= 0.3 * before.count(token) + 0.2 * (token in before)
        expected.append(penalised)
        path.append(int(penalised.argmax()))
    metadata = options(
        1,
        no_penalties=False,
        prompt_token_ids=torch.tensor([[*prompt, SIZE]]),
        output_token_ids=[written],
        repetition_penalties=torch.tensor([1.5]),
        frequency_penalties=torch.tensor([0.3]),
        presence_penalties=torch.tensor([0.2]),
    )
    metadata.max_num_logprobs = SIZE
    result = run([path[:3]], logits, metadata, mode="processed_logprobs")
    assert result.tokens == [path], "every row is reached"
    for row, penalised in enumerate(expected):
        ids = result.logprobs.logprob_token_ids[row]
        np.testing.assert_allclose(result.logprobs.logprobs[row], np.log(softmax(penalised))[ids], atol=1e-5)


def test_a_bad_word_is_withheld_behind_the_drafts_that_begin_it():
    logits = torch.zeros(2, SIZE)
    logits[:, 3], logits[:, 4] = 2.0, 1.0
    assert run([[3]], logits, options(1, bad_words_token_ids={0: [[3, 3]]})).tokens == [[3, 4]]


def test_allowed_token_ids_hold_in_every_row():
    logits = noise(3, seed=5)
    forbidden = torch.ones(1, SIZE, dtype=torch.bool)
    forbidden[0, [2, 6]] = False
    best = [2 if row[2] >= row[6] else 6 for row in logits.tolist()]
    assert run([best[:2]], logits, options(1, allowed_token_ids_mask=forbidden)).tokens == [best]


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_the_first_token_has_the_law_of_the_target_whatever_the_proposal(kind):
    torch.manual_seed(11)
    row = noise(1, seed=8)[0]
    row[5] = -INF
    proposal = torch.full((SIZE,), 1 / SIZE)
    drafted = torch.randint(SIZE, (SAMPLES,)).tolist()
    q = proposal.repeat(SAMPLES, 1) if kind == "dense" else None
    result = run([[token] for token in drafted], row.repeat(2 * SAMPLES, 1), random_options([0.7] * SAMPLES), q)
    assert_law([tokens[0] for tokens in result.tokens], softmax(row.double() / 0.7))


def test_top_k_counts_legal_tokens_only():
    torch.manual_seed(12)
    row = torch.tensor([5.0, 4.0, 1.0, 0.5, 0.0, -1.0, -2.0, -3.0])
    row[:2] = -INF  # masked
    metadata = random_options([1.0] * SAMPLES, top_k=torch.full((SAMPLES,), 2))
    law = softmax(np.where(np.isin(np.arange(SIZE), [2, 3]), row.double(), -np.inf))
    result = run([[2]] * SAMPLES, row.repeat(2 * SAMPLES, 1), metadata)
    assert_law([tokens[0] for tokens in result.tokens], law)


def test_a_seed_gives_the_same_output_in_every_batch():
    def seeded(index):
        return {index: torch.Generator().manual_seed(42)}

    mine, other = noise(3, seed=1), noise(2, seed=2)
    alone = run([[1, 2]], mine, random_options([1.0], generators=seeded(0)))
    beside = run([[4], [1, 2]], torch.cat((other, mine)), random_options([0.0, 1.0], generators=seeded(1)))
    assert beside.tokens[1] == alone.tokens[0]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_reached_fails_its_request_alone(value, temperature):
    logits = torch.full((6, SIZE), -INF)
    logits[:, 3] = 0.0  # every row allows one token
    logits[3] = value
    result = run([[3], [3], [3]], logits, random_options([temperature] * 3))
    assert result.failures == {1: RowFailure(FailureKind.NON_FINITE, 1)}
    assert result.tokens == [[3, 3], [3, 0], [3, 3]]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_behind_a_rejected_draft_does_not_fail(value, temperature):
    logits = torch.full((2, SIZE), -INF)
    logits[0, 3] = 0.0
    logits[1] = value
    result = run([[4]], logits, random_options([temperature]))
    assert (result.tokens, result.failures) == ([[3]], {})


def test_options_that_leave_nothing_are_told_from_a_broken_model():
    forbidden = torch.ones(1, SIZE, dtype=torch.bool)
    result = run([[1]], noise(2), options(1, allowed_token_ids_mask=forbidden))
    assert result.failures == {0: RowFailure(FailureKind.NOTHING_LEFT, 0)}
