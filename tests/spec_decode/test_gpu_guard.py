"""Which request of a step reached which broken row: the arithmetic of the V2 runner's guard."""

import random
from types import SimpleNamespace

import pytest
import torch

from infernix_plugin.logits_processors.gpu_guard import failures_in, first_broken, guard_of, guarding
from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure

NAN, INF = float("nan"), float("inf")
BROKEN, EMPTY = FailureKind.NON_FINITE, FailureKind.NOTHING_LEFT


def batch_of(**rows):
    """An ``InputBatch`` of requests with so many rows each."""
    return SimpleNamespace(
        cu_num_logits=torch.tensor([0, *torch.tensor([*rows.values()]).cumsum(0).tolist()]), req_ids=[*rows]
    )


def output_of(*sampled):
    return SimpleNamespace(num_sampled=torch.tensor(sampled))


def step(batch, sampled, masked, processed=None, constrained=None):
    """The failures of a step that has not been split."""
    worker, sampler, output = SimpleNamespace(), SimpleNamespace(), output_of(*sampled)
    with guarding(worker, sampler) as guard:
        guard_of(worker).masked(masked, batch)
        guard_of(sampler).processed(masked if processed is None else processed, unchanged=processed is None)
    guard.conclude(output, batch, batch.req_ids if constrained is None else constrained)
    return failures_in(output)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_without_a_distribution(dtype):
    logits = torch.tensor([[0.0, -INF], [NAN, -INF], [0.0, INF], [-INF, -INF], [-INF, NAN], [-1e4, -3.0]])
    found = step(batch_of(a=1, b=1, c=1, d=1, e=1, f=1), [1] * 6, logits.to(dtype))
    assert found == dict.fromkeys("bcde", RowFailure(BROKEN, 0))


def test_rows_that_options_leave_nothing_of():
    masked = torch.tensor([[0.0, 1.0], [0.0, 1.0], [-INF, -INF], [NAN, 1.0], [0.0, 1.0]])
    processed = masked.clone()
    processed[[1, 2, 3]] = torch.tensor([[-INF, -INF], [-INF, -INF], [-INF, NAN]])
    processed[4] = torch.tensor([-INF, INF])
    found = step(batch_of(a=1, b=1, c=1, d=1, e=1), [1] * 5, masked, processed)
    assert found == {
        "b": RowFailure(EMPTY, 0),
        "c": RowFailure(BROKEN, 0),  # there was nothing before
        "d": RowFailure(BROKEN, 0),
        "e": RowFailure(BROKEN, 0),
    }


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_rows_are_processed_chunk_by_chunk(cut):
    masked = torch.zeros(6, 4)
    processed = masked.clone()
    processed[[2, 4]] = -INF
    batch, output = batch_of(a=3, b=1, c=2), output_of(3, 1, 2)
    sampler = SimpleNamespace()
    with guarding(sampler) as guard:
        guard.masked(masked, batch)
        guard.processed(processed[:cut], unchanged=False)
        guard.processed(processed[cut:], unchanged=False)
    guard.conclude(output, batch, ["a", "b", "c"])
    assert failures_in(output) == {"a": RowFailure(EMPTY, 2), "c": RowFailure(EMPTY, 0)}


def test_a_chunk_without_options_counts_as_it_was_masked():
    masked = torch.zeros(4, 4)
    masked[2] = NAN
    batch, output = batch_of(a=2, b=2), output_of(2, 2)
    with guarding() as guard:
        guard.masked(masked, batch)
        guard.processed(masked[:2] - INF, unchanged=False)
        guard.processed(masked[2:], unchanged=True)
    guard.conclude(output, batch, ["a", "b"])
    assert failures_in(output) == {"a": RowFailure(EMPTY, 0), "b": RowFailure(BROKEN, 0)}


@pytest.mark.parametrize("seed", range(20))
def test_the_first_broken_row_counts_if_a_token_came_from_it(seed):
    source = random.Random(seed)
    rows = [source.randrange(1, 5) for _ in range(6)]
    sampled = [source.randrange(count + 1) for count in rows]
    kinds = [[source.choice([None, None, BROKEN, EMPTY]) for _ in range(count)] for count in rows]
    expected = []
    for own, count in zip(kinds, sampled, strict=True):
        reached = [2 * place + (kind is EMPTY) for place, kind in enumerate(own[:count]) if kind is not None]
        expected.append(reached[0] if reached else -1)
    flat = [kind for own in kinds for kind in own]
    broken, empty = torch.tensor([kind is not None for kind in flat]), torch.tensor([kind is EMPTY for kind in flat])
    bounds = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32)
    assert first_broken(broken, empty, bounds, torch.tensor(sampled, dtype=torch.int32)).tolist() == expected


def test_only_constrained_requests_are_reported_and_a_step_without_any_is_not_looked_at():
    logits = torch.zeros(4, 8)
    logits[[1, 3]] = NAN
    assert step(batch_of(a=2, b=1, c=1), [2, 1, 1], logits, constrained=["a", "b"]) == {"a": RowFailure(BROKEN, 1)}
    worker = SimpleNamespace()
    with guarding(worker):
        pass
    assert guard_of(worker) is None
    assert guard_of(SimpleNamespace()) is None
    assert failures_in(output_of(1)) == {}


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_rank_has_seen_its_own_requests_and_all_report_all(ranks):
    """``enable_batch_sharded_sampling``: rank ``r`` samples the requests in slots ``r`` modulo the ranks."""
    rows = {"a": 2, "b": 1, "c": 3, "d": 1, "e": 2}
    sampled = {"a": 2, "b": 1, "c": 2, "d": 1, "e": 1}
    logits = {name: torch.zeros(count, 4) for name, count in rows.items()}
    logits["a"][1], logits["c"][2], logits["e"][0] = NAN, NAN, NAN
    options = {name: each.clone() for name, each in logits.items()}
    options["b"][0] = -INF
    whole = batch_of(**rows)
    codes, outputs = [], []

    def run(rank, combine):
        own = {name: count for index, (name, count) in enumerate(rows.items()) if index % ranks == rank}
        output = output_of(*sampled.values())
        with guarding() as guard:
            if rank < ranks - 1 or ranks == 2:  # the last of three has no constrained request of its own
                guard.masked(torch.cat([logits[name] for name in own]), batch_of(**own))
                guard.processed(torch.cat([options[name] for name in own]), unchanged=False)
        guard.conclude(output, whole, ["a", "b", "d", "e"], combine)
        return output

    for rank in range(ranks):
        run(rank, lambda each: codes.append(each) or each)
    for rank in range(ranks):
        outputs.append(run(rank, lambda _: torch.stack(codes).sum(0)))
    expected = {"a": RowFailure(BROKEN, 1), "b": RowFailure(EMPTY, 0), "e": RowFailure(BROKEN, 0)}
    assert [failures_in(output) for output in outputs] == [expected] * ranks
