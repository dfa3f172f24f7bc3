"""One request's constraint at run time: what vLLM calls the request's grammar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from infernix_plugin.errors import ConstraintDeadEnd, InfernixError
from infernix_plugin.framing.branch import BranchObserver
from infernix_plugin.framing.thinking_budget import ThinkingBudget
from infernix_plugin.matching import MaskState, Session
from infernix_plugin.matching.compiler import Preparation
from infernix_plugin.matching.domain import bitset
from infernix_plugin.spec_decode.grammar_drafts import RequestDrafter
from infernix_plugin.structured_output.record import Record, error_record

Rows = npt.NDArray[np.int32]

UNKNOWN = -1
"""A draft whose token the engine core has not seen (vLLM's padding)."""
EVERYTHING = -1
"""A mask word that allows every token."""


class ConstrainedRequest:
    """A session with its failure and its record. It lives on the request, so preemption never touches it."""

    def __init__(
        self,
        prepared: Preparation,
        *,
        kind: str,
        session: Session | None = None,
        allowed: Rows | None = None,
        drafter: RequestDrafter | None = None,
        budget: ThinkingBudget | None = None,
        branch: BranchObserver | None = None,
    ) -> None:
        """Start at the beginning of the language, or where ``session`` is.

        Args:
            prepared: the grammar of the whole output, and what it took to get it.
            session: of that grammar, behind what is already written.
            kind: for the record.
            allowed: int32[mask_words], cleared bits are never sampled: stop tokens of the vocabulary at which vLLM does
                not stop this request, so that generation would go on behind the end of the content.
            drafter: proposes what the grammar forces; it has read what ``session`` is behind.
            budget: of the reasoning.
            branch: what the output becomes, for the record; ``None`` where only vLLM's parser could say.
        """
        self.session = session or prepared.compiled.session()
        self.kind = kind
        self.failure: BaseException | None = None
        self._prepared = prepared
        self._allowed = allowed
        self._committed = 0
        self._mask_bytes = 0
        self._before_dead_end: Sequence[int] | None = None
        self._drafter = drafter
        self._budget = budget
        self._branch = branch
        self._drafts: tuple[list[int], int] = ([], 0)

    def fill(self, drafts: Sequence[int], rows: Rows) -> list[MaskState]:
        """Write the masks of the frontier and after each draft; the session is unchanged afterwards.

        Args:
            drafts: K token ids; from the first :data:`UNKNOWN` on, nothing is known.
            rows: writable int32[K+1, mask_words]. A row that verification cannot reach, or where no token is legal,
                holds some tokens: a row of nothing would make NaN of the logits, and :meth:`accept` refuses the token.

        Returns:
            The states of the rows up to the first unknown draft; the rows behind it allow everything.
        """
        self._mask_bytes += rows.nbytes
        known = drafts[: drafts.index(UNKNOWN)] if UNKNOWN in drafts else drafts
        used = len(known) + 1
        states = self.session.lookahead(known, rows[:used])
        rows[used:] = EVERYTHING
        if self._budget is not None:
            for position, token in enumerate(self._budget.forced(known)):
                if token is not None and states[position] is MaskState.READY:
                    states[position] = _withhold(rows[position], bitset([token], rows.shape[1] * 32))
        if self._allowed is not None:
            for position, state in enumerate(states):
                if state is MaskState.READY:
                    states[position] = _withhold(rows[position], self._allowed)
        dead = MaskState.DEAD_END in states
        self._before_dead_end = known[: states.index(MaskState.DEAD_END)] if dead else None
        return states

    def accept(self, tokens: Sequence[int]) -> bool:
        """Commit all of ``tokens``, or none: then ``failure`` says why and the request must end.

        A dead end of the latest :meth:`fill` counts only if ``tokens`` reach it.
        """
        if self.failure is not None:
            return False
        before, self._before_dead_end = self._before_dead_end, None
        if before is not None and len(tokens) > len(before) and list(tokens[: len(before)]) == list(before):
            self.failure = self._explain_dead_end(self._committed + len(before))
            return False
        accepted = self.session.preview(tokens)
        if accepted == len(tokens):
            self.session.commit()
            self._committed += accepted
            for watching in (self._drafter, self._budget, self._branch):
                if watching is not None:
                    watching.observe(tokens)
            return True
        self.session.discard()
        self.failure = self._explain(tokens[:accepted])
        return False

    def draft(self, drafts: list[int], most: int) -> list[int]:
        """Put what the grammar forces at the frontier before ``drafts``, which keep their positions.

        What replaces drafts depends on the committed output alone, never on the drafts.
        """
        self._drafts = ([], 0)
        if self._drafter is None or self.failure is not None or self.session.terminated:
            return drafts
        forced = self._drafter.propose(self.session.scout(), most)
        if not forced:
            return drafts
        proposed = forced + drafts[len(forced) :]
        self._drafts = (proposed, len(forced))
        return proposed

    def drafted(self, scheduled: Sequence[int]) -> int:
        """Return which of the scheduled drafts the latest :meth:`draft` replaced, as a bit set of positions."""
        proposed, forced = self._drafts
        self._drafts = ([], 0)
        if list(scheduled) != proposed[: len(scheduled)]:
            return 0
        return (1 << min(forced, len(scheduled))) - 1

    def record(self) -> Record:
        """Return the observation in plain values: counts, and durations in milliseconds."""
        counters = self.session.counters
        observed: Record = {
            "kind": self.kind,
            **({} if self._branch is None else {"branch": self._branch.branch.value}),
            "complete": self.session.complete,
            "terminated": self.session.terminated,
            "cache": self._prepared.outcome.value,
            "mask_positions": counters.mask_positions,
            "mask_bytes": self._mask_bytes,
            "illegal_drafts": counters.illegal_drafts,
            "prepare_ms": _milliseconds(self._prepared.seconds),
            "mask_ms": _milliseconds(counters.mask_seconds),
            "accept_ms": _milliseconds(counters.accept_seconds),
        }
        if self.failure is not None:
            observed["error"] = error_record(self.failure)
        return observed

    def _explain(self, legal: Sequence[int]) -> InfernixError:
        """Say why the token after ``legal`` was refused: nothing is legal there, or the sampler ignored the mask."""
        if self.session.engine_error is not None:
            return self.session.engine_error
        position = self._committed + len(legal)
        rows = np.zeros((len(legal) + 1, self._prepared.compiled.domain.mask_words), dtype=np.int32)
        if self.fill(legal, rows)[-1] is MaskState.DEAD_END:
            return self._explain_dead_end(position)
        return InfernixError(f"The sampler returned a token outside the mask at output position {position}.")

    def _explain_dead_end(self, position: int) -> InfernixError:
        if self.session.engine_error is not None:
            return self.session.engine_error
        return ConstraintDeadEnd(
            f"After {position} output tokens, no token of the model's vocabulary continues the constrained output.",
            hint="The constraint needs text that this vocabulary cannot write from here; allow another spelling.",
        )


def _withhold(row: Rows, allowed: Rows) -> MaskState:
    kept = np.bitwise_and(row, allowed)
    if not kept.any():
        return MaskState.DEAD_END
    row[:] = kept
    return MaskState.READY


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
