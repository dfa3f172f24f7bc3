"""vLLM's rejection kernels of the GPU runner, fed with our mask rows: the output law is the target's.

Vocabulary a, b, x. After the mask p(a) = p(b) = 1/2; the draft is drawn from q(a) = q(x) = 1/2, and x is illegal. Kept
as a draft of probability zero, x leaves the law alone; dropped, as vLLM does, a comes out three times in four.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401  (stand-ins for torch.cuda)
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample
from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker, grammar_invalid_drafts

from infernix_plugin import ConstraintCompiler, MaskState, OutputConstraint, TokenDomain

A, B, X, VOCABULARY = 0, 1, 2, 32
REQUESTS = 700
POSITION = 100
CHI_SQUARE_999 = 10.83
"""Of one degree of freedom: exceeded by chance once in a thousand."""


def logits_of(law: dict[int, float]) -> torch.Tensor:
    row = torch.full((VOCABULARY,), -math.inf)
    for token, probability in law.items():
        row[token] = math.log(probability)
    return row


def our_rows(drafts: list[int]) -> np.ndarray:
    """Mask rows of ``(a|b)+`` from a session of ours: two for each draft."""
    pieces = [b"a", b"b", b"x", *(b"" for _ in range(VOCABULARY - 4)), b"end"]
    domain = TokenDomain(pieces, stop=[VOCABULARY - 1])
    compiled = ConstraintCompiler(domain).compile(OutputConstraint.regex("(a|b)(a|b)+"))
    rows = np.zeros((len(drafts), 2, 1), dtype=np.int32)
    illegal = 0
    for own, draft in zip(rows, drafts, strict=True):
        states = compiled.session().lookahead([draft], own)
        illegal += states[1] is MaskState.UNREACHABLE
    assert illegal == drafts.count(X)
    return rows.reshape(-1, 1)


def first_tokens(*, drop_illegal: bool) -> torch.Tensor:
    """Draft, mask and verify as the runner does; returns the first emitted token of every request."""
    count = REQUESTS
    seeds = torch.arange(count, dtype=torch.int64) * 1_000_003 + 17
    warm, index = torch.ones(count), torch.arange(count, dtype=torch.int32)
    draft_logits = torch.full((count, 1, VOCABULARY), -math.inf)
    drafts = gumbel_sample(
        logits_of({A: 0.5, X: 0.5}).repeat(count, 1),
        index,
        warm,
        seeds,
        torch.full((count,), POSITION, dtype=torch.int64),
        apply_temperature=True,
        is_drafting=True,
        logits_cache=draft_logits,
        logits_cache_col=torch.tensor(0, dtype=torch.int64),
    )
    bounds = torch.arange(0, 2 * count + 1, 2, dtype=torch.int32)
    local = torch.arange(2, dtype=torch.int32).repeat(count)
    names = [str(number) for number in range(count)]
    batch = SimpleNamespace(
        req_ids=names,
        num_reqs=count,
        num_draft_tokens=count,
        num_draft_tokens_per_req=np.full(count, 1, dtype=np.int32),
        expanded_local_pos=local,
        cu_num_logits=bounds,
        cu_num_logits_np=bounds.numpy(),
    )
    logits = logits_of({A: 0.25, B: 0.25, X: 0.5}).repeat(2 * count, 1)
    worker = StructuredOutputsWorker(2 * count, VOCABULARY, torch.device("cpu"), 2, num_bonus_tokens=1)
    worker.apply_grammar_bitmask(logits, batch, names, our_rows(drafts.tolist()))
    proposed = torch.stack([torch.zeros(count, dtype=torch.int64), drafts.to(torch.int64)], dim=1).reshape(-1)
    if drop_illegal:
        invalid = grammar_invalid_drafts(batch, names, (drafts != X).to(torch.int64).tolist())
        proposed = proposed.masked_fill(invalid, -1)
    sampled, _ = rejection_sample(
        logits,
        draft_logits,
        proposed,
        bounds,
        POSITION + local.to(torch.int64),
        index,
        index.repeat_interleave(2),
        local,
        warm,
        seeds,
        1,
    )
    return sampled[:, 0]


def chi_square(tokens: torch.Tensor) -> float:
    counts = torch.bincount(tokens, minlength=VOCABULARY).double()
    assert counts[[A, B]].sum() == REQUESTS, "only legal tokens"
    return float(((counts[[A, B]] - REQUESTS / 2) ** 2 / (REQUESTS / 2)).sum())


@pytest.mark.parametrize(("drop_illegal", "exact"), [(False, True), (True, False)])
def test_an_illegal_draft_that_is_kept_leaves_the_law_alone(drop_illegal, exact):
    assert (chi_square(first_tokens(drop_illegal=drop_illegal)) < CHI_SQUARE_999) is exact
