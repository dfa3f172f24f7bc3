"""q of speculative sampling: the distributions that the drafts of a step were drawn from.

A draft is verified exactly only against the distribution that produced it, so q travels with the drafts: per request,
by request id, from the step that proposed them to the step that verifies them. Per position it is

- *one-hot*: the draft was not sampled. Greedy MTP and DFlash, n-gram copies, drafts forced by a grammar;
- *sparse*: sampled from a few candidate ids (DFlash2);
- *dense*: sampled from the whole vocabulary (vLLM's probabilistic MTP);
- *unknown*: nobody recorded it. Such a draft and those behind it are not verified, whatever they are, which is exact.

What proposers have to do. A proposer returns its q where vLLM's own do, from ``take_last_draft_probs()``: ``None``
(every draft one-hot), a dense tensor float32[B, K, V] as vLLM's, or a :class:`Proposal`. What replaces single drafts in
the worker wraps the result in :meth:`Proposal.of` and marks the positions by :meth:`Proposal.replaced`. What replaces
drafts in the engine core, after the proposer, marks the positions by :func:`mark_one_hot` on the scheduler output; the
drafts it leaves alone keep their positions.

Whether a position is replaced must not depend on the values of sampled drafts that stay, at that position or behind it:
a draft that stays *because of its value* is no longer drawn from its q.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_ONE_HOT = "infernix_one_hot"
"""Attribute of a ``SchedulerOutput``: request id -> bit set of positions. Absent where nothing is marked."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """q of the drafts of one proposing step, rows in the order of its batch.

    Attributes:
        probabilities: float32[B, K, V] dense, or float32[B, K, C] over ``candidates``. Each row sums to 1.
        candidates: int64[B, K, C], distinct ids per row, or ``None`` for dense rows.
        one_hot: bool[B, K], positions whose draft was not sampled; ``None``: none. Their q is not read.
    """

    probabilities: Tensor
    candidates: Tensor | None = None
    one_hot: Tensor | None = None

    @classmethod
    def of(cls, draft_probs: Tensor | Proposal | None) -> Proposal | None:
        """Return what a proposer returned as a proposal; ``None`` still means that every draft is one-hot."""
        return cls(draft_probs) if isinstance(draft_probs, Tensor) else draft_probs

    def replaced(self, positions: Tensor) -> Proposal:
        """Return the proposal with the drafts at ``positions``, bool[B, K], replaced by ones that were not sampled."""
        return replace(self, one_hot=positions if self.one_hot is None else self.one_hot | positions)


class ProposalLedger:
    """Which q belongs to the drafts that a request has pending, by request id.

    A request may skip steps between proposal and verification, and its row in the batch may change meanwhile.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Proposal, int] | None] = {}

    def record(self, request_ids: Sequence[str], proposal: Proposal | None) -> None:
        """Keep q of the drafts just proposed for ``request_ids``; ``None``: all of them are one-hot."""
        for row, request_id in enumerate(request_ids):
            self._entries[request_id] = None if proposal is None else (proposal, row)

    def retain(self, request_ids: Container[str]) -> None:
        """Drop what is known of all other requests; their tensors are as large as the vocabulary."""
        for request_id in [known for known in self._entries if known not in request_ids]:
            del self._entries[request_id]

    def step(self, request_ids: Sequence[str], counts: Sequence[int], one_hot: Mapping[str, int]) -> StepProposal:
        """Line up q with the drafts of a step.

        Args:
            request_ids: of the batch, in its order.
            counts: the number of drafts of each.
            one_hot: see :func:`one_hot_positions`.
        """
        total = sum(counts)
        known = torch.zeros(total, dtype=torch.bool)
        certain = torch.zeros(total, dtype=torch.bool)
        sampled: dict[int, tuple[Proposal, list[int], list[int], list[int]]] = {}
        start = 0
        for request_id, count in zip(request_ids, counts, strict=True):
            marked = one_hot.get(request_id, 0)
            recorded = request_id in self._entries
            entry = self._entries.get(request_id)
            for position in range(count):
                flat = start + position
                if marked >> position & 1 or (recorded and entry is None):
                    known[flat] = certain[flat] = True
                elif entry is not None and position < entry[0].probabilities.shape[1]:
                    proposal, row = entry
                    known[flat] = True
                    if proposal.one_hot is not None and proposal.one_hot[row, position]:
                        certain[flat] = True
                        continue
                    _, flats, rows, positions = sampled.setdefault(id(proposal), (proposal, [], [], []))
                    flats.append(flat)
                    rows.append(row)
                    positions.append(position)
            start += count
        groups = tuple(
            _Group(proposal, torch.tensor(flats), torch.tensor(rows), torch.tensor(positions))
            for proposal, flats, rows, positions in sampled.values()
        )
        return StepProposal(known, certain, groups)


@dataclass(frozen=True, slots=True)
class _Group:
    """Sampled drafts of one proposal: flat draft ``flat[i]`` was drawn from ``proposal`` at ``row[i], position[i]``."""

    proposal: Proposal
    flat: Tensor
    row: Tensor
    position: Tensor

    def chances(self, drafts: Tensor) -> Tensor:
        """Return q(draft), float32[n], of the group's own drafts."""
        ids = drafts[self.flat].clamp_min(0)
        proposal = self.proposal
        if proposal.candidates is None:
            return proposal.probabilities[self.row, self.position, ids]
        hit = proposal.candidates[self.row, self.position] == ids.unsqueeze(1)
        return (proposal.probabilities[self.row, self.position] * hit).sum(1)


@dataclass(frozen=True, slots=True)
class StepProposal:
    """q lined up with the N drafts of a step, which are in batch order, one request after the other.

    Attributes:
        known: bool[N], the drafts that may be verified.
        one_hot: bool[N], those of them whose q is one-hot.
    """

    known: Tensor
    one_hot: Tensor
    groups: tuple[_Group, ...] = ()

    @classmethod
    def certain(cls, drafts: int) -> StepProposal:
        """Return q of drafts none of which was sampled."""
        return cls(torch.ones(drafts, dtype=torch.bool), torch.ones(drafts, dtype=torch.bool))

    @classmethod
    def dense(cls, probabilities: Tensor) -> StepProposal:
        """Return q of drafts whose distributions are the rows of float32[N, V]."""
        drafts = len(probabilities)
        rows = torch.arange(drafts)
        group = _Group(Proposal(probabilities.unsqueeze(0)), rows, torch.zeros_like(rows), rows)
        return cls(torch.ones(drafts, dtype=torch.bool), torch.zeros(drafts, dtype=torch.bool), (group,))

    def chances(self, drafts: Tensor) -> Tensor:
        """Return q(draft) of every draft, float32[N]; of an unknown one 1, which must not be used.

        Args:
            drafts: int64[N]; a negative id stands for no draft.
        """
        chances = torch.ones(len(drafts))
        for group in self.groups:
            chances[group.flat] = group.chances(drafts)
        return chances

    def subtract_from(self, target: Tensor, rows: Tensor, drafts: Tensor) -> None:
        """Turn rows of p into the residual max(p - q, 0), not normalised, in place.

        Args:
            target: float[M, V], p where the draft of each of ``rows`` was verified.
            rows: int64[M], distinct flat draft numbers. Rows of unknown drafts and of none stay p.
            drafts: int64[N], all drafts of the step.
        """
        ids = drafts[rows]
        certain = self.one_hot[rows] & (ids >= 0)
        target[certain, ids[certain]] = 0
        for group in self.groups:
            place = torch.full((len(self.known),), -1)
            place[rows] = torch.arange(len(rows))
            mine = (place[group.flat] >= 0) & (drafts[group.flat] >= 0)
            into = place[group.flat[mine]]
            if not len(into):
                continue
            source = (group.row[mine], group.position[mine])
            q = group.proposal.probabilities[source].to(target.dtype)
            if group.proposal.candidates is None:
                target[into] = (target[into] - q).clamp_(min=0)
            else:
                ids = group.proposal.candidates[source]
                target[into.unsqueeze(1), ids] = (target[into.unsqueeze(1), ids] - q).clamp_(min=0)


def mark_one_hot(scheduler_output: Any, request_id: str, positions: int) -> None:
    """Note in the engine core that drafts of a scheduled request were replaced by ones that were not sampled.

    Args:
        scheduler_output: vLLM's ``SchedulerOutput``; it carries the note to the worker.
        request_id: of the request.
        positions: bit ``j`` set for the draft at position ``j``.
    """
    marks: dict[str, int] | None = getattr(scheduler_output, _ONE_HOT, None)
    if marks is None:
        marks = {}
        setattr(scheduler_output, _ONE_HOT, marks)
    marks[request_id] = marks.get(request_id, 0) | positions


def one_hot_positions(scheduler_output: Any) -> Mapping[str, int]:
    """Return the replaced drafts of a step: request id -> bit set of positions."""
    marks: Mapping[str, int] | None = getattr(scheduler_output, _ONE_HOT, None)
    return marks or {}
