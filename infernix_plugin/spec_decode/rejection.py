"""Speculative sampling: accept or reject drafts so that the output is distributed as if there had been none.

Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding (2023); Chen et al.: Accelerating
Large Language Model Decoding with Speculative Sampling (2023). With p the target distribution and q the distribution
that produced the draft x:

- accept x with probability min(1, p(x) / q(x));
- at the first rejection, draw one token from max(p - q, 0), normalised, and stop;
- if every draft was accepted, draw one more token from p of the whole prefix.

Under a constraint p is zero outside the mask, so an illegal draft is always rejected, and then the residual is what is
drawn from. Dropping it and drawing from p instead would be biased.

The first half of this module is that theorem in float64, for one request, as plainly as it can be written; the tests
hold everything else against it. The second half is the same for a whole step, on tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infernix_plugin.spec_decode.proposal import StepProposal

Distribution = NDArray[np.float64]
"""float64[V], not negative, sums to 1."""


def acceptance(p: Distribution, q: Distribution, draft: int) -> float:
    """Return the probability with which ``draft``, drawn from ``q``, is accepted for the target ``p``."""
    return min(1.0, float(p[draft] / q[draft]))


def residual(p: Distribution, q: Distribution) -> Distribution:
    """Return the distribution of the token that replaces a rejected draft.

    Where p and q are equal nothing is ever rejected; the result is then p.
    """
    excess = np.maximum(p - q, 0.0)
    return excess / excess.sum() if excess.any() else p


def output_law(
    targets: Sequence[Distribution], proposals: Sequence[Distribution], drafts: Sequence[int]
) -> dict[tuple[int, ...], float]:
    """Return the probability of every output of one verification.

    Args:
        targets: K + 1 distributions, p after each prefix of the drafts.
        proposals: K distributions, q that each draft was drawn from.
        drafts: K tokens.

    Returns:
        Output tokens (the accepted drafts and one more) to their probability; those of probability zero are left out.
    """
    law: dict[tuple[int, ...], float] = {}
    reached = 1.0

    def conclude(accepted: Sequence[int], probability: float, last: Distribution) -> None:
        for token in np.flatnonzero(last):
            if probability:
                law[*accepted, int(token)] = probability * float(last[token])

    for position, draft in enumerate(drafts):
        p, q = targets[position], proposals[position]
        accepted = acceptance(p, q, draft)
        conclude(drafts[:position], reached * (1 - accepted), residual(p, q))
        reached *= accepted
    conclude(drafts, reached, targets[len(drafts)])
    return law


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a step are: those of one request follow each other, one per draft and one behind the last.

    Attributes:
        counts: int64[B], drafts of each request.
        request: int64[R], the request of each row; R = N drafts + B.
        position: int64[R], the number of drafts before each row.
        start: int64[B], the first row of each request.
        draft_rows: int64[N], the row that judges each draft.
    """

    counts: Tensor
    request: Tensor
    position: Tensor
    start: Tensor
    draft_rows: Tensor

    @classmethod
    def of(cls, counts: Sequence[int]) -> Layout:
        """Lay out a step with this many drafts per request."""
        drafts = torch.tensor(counts, dtype=torch.int64)
        rows = drafts + 1
        start = rows.cumsum(0) - rows
        request = torch.repeat_interleave(rows)
        position = torch.arange(len(request)) - start[request]
        return cls(drafts, request, position, start, (position < drafts[request]).nonzero().squeeze(1))


@dataclass(frozen=True, slots=True)
class Targets:
    """p of every row of a step.

    Attributes:
        best: int64[R], the most probable token, of equals the smallest id. Read for greedy requests only.
        weights: float32[R', V], p up to a factor per row, for the rows of random requests; ``None`` without any.
        totals: float32[R'], the sums of ``weights``.
        weights_row: int64[R], where the weights of a row are; undefined for rows of greedy requests.
        greedy: bool[B].
        sound: bool[R], whether the row holds a distribution at all.
    """

    best: Tensor
    weights: Tensor | None
    totals: Tensor | None
    weights_row: Tensor
    greedy: Tensor
    sound: Tensor


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a step.

    Attributes:
        accepted: int64[B], how many drafts of each request were accepted.
        token: int64[B], the token behind them; 0 where the request failed.
        failed: bool[B], verification reached a row that holds no distribution; its position is ``accepted``.
    """

    accepted: Tensor
    token: Tensor
    failed: Tensor


def verify(layout: Layout, targets: Targets, drafts: Tensor, proposal: StepProposal, uniforms: Tensor) -> Verdict:
    """Verify the drafts of a step.

    Args:
        layout: of the step.
        targets: p of its rows.
        drafts: int64[N]; a negative id stands for no draft and ends its request's verification.
        proposal: q of the drafts.
        uniforms: float64[R] in [0, 1), independent; not read for greedy requests. Row ``i`` decides whether the draft
            that it judges is accepted, and the last row of a request which token is drawn.
    """
    batch, rows = len(layout.counts), layout.draft_rows
    accepted = drafts == targets.best[rows]
    random = ~targets.greedy
    if targets.weights is not None and targets.totals is not None:
        judged = random[layout.request[rows]].nonzero().squeeze(1)
        place = targets.weights_row[rows[judged]]
        p = targets.weights[place, drafts[judged].clamp_min(0)].double() / targets.totals[place].double()
        # Strictly below: a token of probability zero is never accepted, whatever was drawn.
        accepted[judged] = uniforms[rows[judged]] * proposal.chances(drafts)[judged].double() < p
    accepted &= proposal.known & (drafts >= 0) & targets.sound[rows]
    run = torch.zeros(batch, int(layout.counts.max()) + 1 if batch else 1, dtype=torch.int64)
    run[layout.request[rows], layout.position[rows]] = accepted.long()
    length = run.cumprod(1).sum(1)

    final = layout.start + length
    failed = ~targets.sound[final]
    token = targets.best[final]
    drawn = (random & ~failed).nonzero().squeeze(1)
    if len(drawn) and targets.weights is not None and targets.totals is not None:
        place = targets.weights_row[final[drawn]]
        p = targets.weights[place] / targets.totals[place].unsqueeze(1)
        rejected = (length[drawn] < layout.counts[drawn]).nonzero().squeeze(1)
        if len(rejected):
            of = drawn[rejected]
            rest = p[rejected]
            proposal.subtract_from(rest, final[of] - of, drafts)  # rows without the last one of each request before
            left = rest.sum(1) > 0  # p equal to q up to rounding: nothing is left, and p is as good
            p[rejected[left]] = rest[left]
        token[drawn] = draw(p, uniforms[layout.start[drawn] + layout.counts[drawn]])
    return Verdict(length, torch.where(failed, 0, token), failed)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one token per row by inverting its cumulative distribution; a weight of zero is never drawn.

    Args:
        weights: float[M, V], not negative, with a positive sum in every row.
        uniforms: float64[M] in [0, 1).

    Returns:
        int64[M].
    """
    cumulative = weights.cumsum(1, dtype=torch.float64)
    # The product stays below the total for every representable number below 1, so there is a token above it; the
    # first such token is one at which the sum grows.
    return torch.searchsorted(cumulative, (uniforms * cumulative[:, -1]).unsqueeze(1), right=True).squeeze(1)
