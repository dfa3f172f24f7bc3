"""Failed rows: the guard of ordinary steps, and what the engine core makes of them."""

from types import SimpleNamespace

import pytest
import torch
from vllm.v1.sample.logits_processor import LogitsProcessors

from infernix_plugin.errors import ConstraintDeadEnd, NonFiniteLogits
from infernix_plugin.logits_processors.guard import GuardedSampler
from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure, failures_of, mark_failures
from infernix_plugin.structured_output.failures import StepFailures

BROKEN = [float("nan"), float("inf"), float("-inf")]


def greedy(batch, forbidden=None):
    return SimpleNamespace(
        all_random=False,
        all_greedy=True,
        temperature=torch.zeros(batch),
        max_num_logprobs=None,
        logprob_token_ids=None,
        bad_words_token_ids={},
        allowed_token_ids_mask=forbidden,
        logitsprocs=LogitsProcessors(),
    )


def sample(sampler, logits, metadata):
    return sampler.sample(logits, metadata)[0].tolist()


@pytest.mark.parametrize("value", BROKEN)
def test_an_ordinary_step_marks_the_broken_row_alone(value):
    logits = torch.eye(4)[[2, 1, 3]]
    logits[1] = value
    sampler = GuardedSampler()
    sampler.guarded = {0, 1, 2}
    assert sample(sampler, logits, greedy(3)) == [2, 0, 3]
    assert sampler.failures == {1: RowFailure(FailureKind.NON_FINITE, 0)}
    assert sample(sampler, torch.eye(4)[:3], greedy(3)) == [0, 1, 2]
    assert sampler.failures == {}


def test_an_unconstrained_row_is_not_looked_at():
    logits = torch.eye(4)[:2]
    logits[1] = float("nan")
    sampler = GuardedSampler()
    sampler.guarded = {0}
    sample(sampler, logits, greedy(2))
    assert sampler.failures == {}


def test_options_that_forbid_everything_are_a_dead_end():
    forbidden = torch.tensor([[False] * 4, [True] * 4])
    logits = torch.eye(4)[:2].masked_fill(forbidden, float("-inf"))
    sampler = GuardedSampler()
    sampler.guarded = {0, 1}
    sample(sampler, logits, greedy(2, forbidden))
    assert sampler.failures == {1: RowFailure(FailureKind.NOTHING_LEFT, 0)}


def request(name, written):
    return SimpleNamespace(request_id=name, num_output_tokens=written)


@pytest.mark.parametrize(
    ("kind", "error"), [(FailureKind.NON_FINITE, NonFiniteLogits), (FailureKind.NOTHING_LEFT, ConstraintDeadEnd)]
)
def test_a_commit_that_reaches_the_row_is_refused_and_its_neighbour_is_not(kind, error):
    output = SimpleNamespace()
    mark_failures(output, {"broken": RowFailure(kind, 2)})
    failures = StepFailures()
    failures.begin(failures_of(output))
    assert failures.refuse(request("sound", 8), 3) is None
    refused = failures.refuse(request("broken", 8), 3)
    assert isinstance(refused, error)
    assert "After 7 output tokens" in str(refused)
    assert failures.errors == {"broken": refused}
    failures.begin(failures_of(SimpleNamespace()))
    assert failures.errors == {}
    assert failures.refuse(request("broken", 9), 3) is None


def test_a_stop_before_the_failed_row_commits():
    failures = StepFailures()
    failures.begin({"stopped": RowFailure(FailureKind.NON_FINITE, 2)})
    assert failures.refuse(request("stopped", 7), 2) is None
    assert failures.errors == {}
