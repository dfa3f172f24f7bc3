"""Which request of a step reached which broken row: the arithmetic of the V2 runner's guard."""

import random
from types import SimpleNamespace

import pytest
import torch

from infernix_plugin.logits_processors.gpu_guard import broken_rows, conclude, failures_in, first_broken, watch
from infernix_plugin.logits_processors.row_failure import FailureKind, RowFailure

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_without_a_distribution(dtype):
    logits = torch.tensor([[0.0, -INF], [NAN, -INF], [0.0, INF], [-INF, -INF], [-INF, NAN], [-1e4, -3.0]])
    assert broken_rows(logits.to(dtype)).tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_the_first_broken_row_counts_if_a_token_came_from_it(seed):
    source = random.Random(seed)
    rows = [source.randrange(1, 5) for _ in range(6)]
    sampled = [source.randrange(count + 1) for count in rows]
    broken = [[source.random() < 0.3 for _ in range(count)] for count in rows]
    expected = [
        flags.index(True) if True in flags[:count] else -1 for flags, count in zip(broken, sampled, strict=True)
    ]
    flat = torch.tensor([flag for flags in broken for flag in flags])
    bounds = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32)
    assert first_broken(flat, bounds, torch.tensor(sampled, dtype=torch.int32)).tolist() == expected


def test_only_constrained_requests_are_reported_and_a_step_without_any_is_not_looked_at():
    logits = torch.zeros(4, 8)
    logits[[1, 3]] = NAN
    batch = SimpleNamespace(cu_num_logits=torch.tensor([0, 2, 3, 4]), req_ids=["a", "b", "c"])
    worker = SimpleNamespace()
    output = SimpleNamespace(num_sampled=torch.tensor([2, 1, 1]))
    watch(worker, logits, ["a", "b"])
    conclude(worker, batch, output)
    assert failures_in(output) == {"a": RowFailure(FailureKind.NON_FINITE, 1)}
    later = SimpleNamespace(num_sampled=torch.tensor([2, 1, 1]))
    conclude(worker, batch, later)
    conclude(None, batch, later)
    assert failures_in(later) == {}
