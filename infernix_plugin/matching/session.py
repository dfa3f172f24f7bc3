"""One request's position in the output language, with the transaction that drafts and previews need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.errors import ConstraintTooLarge, InvalidContinuation, excerpt
from infernix_plugin.matching.domain import Bitset

if TYPE_CHECKING:
    from infernix_plugin.matching.compiled import CompiledGrammar
    from infernix_plugin.matching.engines.base import Matcher


class MaskState(IntEnum):
    """What a mask row means. Only READY rows may decide about a commit."""

    READY = 0
    """The prefix is legal and the row holds its legal next tokens."""
    DEAD_END = 1
    """The prefix is legal, but no token of the vocabulary continues it and it may not end."""
    UNREACHABLE = 2
    """An earlier draft was illegal, or the output has ended: the position cannot be reached."""


@dataclass(slots=True)
class SessionCounters:
    """Work paid so far; a rolled-back lookahead is not taken back."""

    mask_positions: int = 0
    """Rows that were computed from the matcher or from the first mask, not filled up."""
    illegal_drafts: int = 0
    """Lookaheads that ended at a draft the grammar refuses."""
    mask_seconds: float = 0.0
    """Time in masks, lookahead and rollback."""
    accept_seconds: float = 0.0
    """Time in accept, preview and discard."""


class Session:
    """A mutable matcher owned by one request; not thread-safe.

    Rows are the caller's: writable, C-contiguous int32 of ``ceil(V / 32)`` words, bit ``id % 32`` of word ``id // 32``
    set when the token is allowed. A stop token is allowed exactly where the output may end. Rows that are not READY
    hold a safe filler, some set of generable tokens, never an empty one.

    Attributes:
        counters: work paid so far.
        engine_error: why the latest DEAD_END is one, if the engine gave up there; ``None`` if the vocabulary did.
    """

    __slots__ = (
        "_compiled",
        "_domain",
        "_matcher",
        "_pending",
        "_pending_end",
        "_steps",
        "_terminated",
        "counters",
        "engine_error",
    )

    def __init__(self, compiled: CompiledGrammar, prefix: bytes = b"") -> None:
        """Start at the beginning, or after ``prefix``, which counts as already written output.

        Raises:
            InvalidContinuation: no member of the language starts with ``prefix``; located by byte offset.
        """
        self._compiled = compiled
        self._domain = compiled.domain
        self._matcher = compiled.new_matcher()
        self._steps = 0
        self._terminated = False
        self._pending: int | None = None
        self._pending_end = False
        self.counters = SessionCounters()
        self.engine_error: ConstraintTooLarge | None = None
        if prefix:
            legal = self._matcher.accept_bytes(prefix)
            if legal < len(prefix):
                written = excerpt(prefix[legal:].decode(errors="backslashreplace"))
                raise InvalidContinuation(
                    f"the constraint does not allow the already written output to go on with {written}",
                    location=f"offset {legal}",
                )
            self._steps = 1  # one step that is never undone: the first mask is not the mask here

    @property
    def complete(self) -> bool:
        """Whether the output so far is a member of the language; while a preview is open, the previewed output."""
        return self._terminated or self._matcher.can_end()

    @property
    def terminated(self) -> bool:
        """Whether a stop token was accepted; while a preview is open, by the previewed output."""
        return self._terminated

    def fill_mask(self, row: Bitset) -> MaskState:
        """Write the tokens that may come next.

        Raises:
            RuntimeError: a preview is open.
        """
        self._refuse_preview("fill_mask")
        started = perf_counter()
        if self._terminated:
            np.copyto(row, self._domain.generable_bits)
            state = MaskState.UNREACHABLE
        else:
            state = self._fill(row, self._matcher, at_start=not self._steps)
        self.counters.mask_seconds += perf_counter() - started
        return state

    def lookahead(self, drafts: Sequence[int], rows: NDArray[np.int32]) -> list[MaskState]:
        """Write the mask after each prefix of ``drafts``; the session is afterwards as it was before.

        Args:
            drafts: K proposed tokens, any integers.
            rows: int32 ``[K + 1 or more, mask_words]``; row ``i`` becomes the mask after ``i`` drafts.

        Returns:
            K + 1 states. The row of the first illegal draft is READY, with the mask that refuses it.

        Raises:
            RuntimeError: a preview is open, or the engine contradicts its own mask.
        """
        self._refuse_preview("lookahead")
        started = perf_counter()
        if self._terminated:
            rows[: len(drafts) + 1] = self._domain.generable_bits
            return [MaskState.UNREACHABLE] * (len(drafts) + 1)
        states: list[MaskState] = []
        scout = self._matcher
        for position, row in enumerate(rows[: len(drafts) + 1]):
            states.append(self._fill(row, scout, at_start=not self._steps and not position))
            if position == len(drafts) or states[-1] is MaskState.DEAD_END:
                break
            draft = int(drafts[position])
            if not self._allows(row, draft):
                self.counters.illegal_drafts += 1
                break
            if self._domain.is_stop(draft):
                break
            if scout is self._matcher:
                scout = self._matcher.fork()
            if not self._advance(scout, draft):
                states.append(self._dead_end(rows[position + 1], self.engine_error))
                break
        reached = len(states)
        rows[reached : len(drafts) + 1] = rows[reached - 1]
        states += [MaskState.UNREACHABLE] * (len(drafts) + 1 - reached)
        self.counters.mask_seconds += perf_counter() - started
        return states

    def scout(self) -> Matcher:
        """Return an independent matcher at this position, for looks that leave the session as it is.

        Raises:
            RuntimeError: a preview is open.
        """
        self._refuse_preview("scout")
        return self._matcher.fork()

    def accept(self, token: int) -> bool:
        """Commit one token; ``False``, and no change, if it is not legal here.

        Raises:
            RuntimeError: a preview is open.
        """
        self._refuse_preview("accept")
        started = perf_counter()
        accepted = self._step(token)
        self.counters.accept_seconds += perf_counter() - started
        return accepted

    def preview(self, tokens: Sequence[int]) -> int:
        """Accept tokens provisionally, up to the first illegal one or the stop token; returns how many.

        The preview stays open, however many were accepted, until :meth:`commit` or :meth:`discard`.

        Raises:
            RuntimeError: a preview is already open.
        """
        self._refuse_preview("preview")
        started = perf_counter()
        self._pending, self._pending_end = self._steps, self._terminated
        accepted = 0
        for token in tokens:
            if not self._step(token):
                break
            accepted += 1
        self.counters.accept_seconds += perf_counter() - started
        return accepted

    def commit(self) -> None:
        """Make the previewed tokens final. Cannot fail.

        Raises:
            RuntimeError: no preview is open.
        """
        if self._pending is None:
            raise RuntimeError("commit without a preview")
        self._pending = None

    def discard(self) -> None:
        """Return to the position before the preview.

        Raises:
            RuntimeError: no preview is open.
        """
        if self._pending is None:
            raise RuntimeError("discard without a preview")
        started = perf_counter()
        self._rollback(self._steps - self._pending)
        self._terminated = self._pending_end
        self._pending = None
        self.counters.accept_seconds += perf_counter() - started

    def _refuse_preview(self, action: str) -> None:
        if self._pending is not None:
            raise RuntimeError(f"{action} while a preview is open")

    def _fill(self, row: Bitset, matcher: Matcher, *, at_start: bool) -> MaskState:
        self.counters.mask_positions += 1
        if at_start:
            np.copyto(row, self._compiled.first_row)
            return MaskState.READY
        domain = self._domain
        try:
            allowed = matcher.fill(row)
        except ConstraintTooLarge as error:
            return self._dead_end(row, error)
        if allowed is not row:
            np.bitwise_and(allowed, domain.generable_bits, row)
        if matcher.can_end():
            np.bitwise_or(row, domain.stop_bits, row)
        # Vocabularies begin with digits and punctuation, so one look at the first word often saves the search, for
        # which comparing bytes takes a fraction of the time of any().
        return MaskState.READY if row[0] or row.tobytes() != domain.no_bits else self._dead_end(row)

    def _dead_end(self, row: Bitset, error: ConstraintTooLarge | None = None) -> MaskState:
        self.engine_error = error
        np.copyto(row, self._domain.generable_bits)
        return MaskState.DEAD_END

    def _allows(self, row: Bitset, token: int) -> bool:
        return 0 <= token < self._domain.vocab_size and bool(int(row[token >> 5]) >> (token & 31) & 1)

    def _step(self, token: int) -> bool:
        token = int(token)
        if self._terminated:
            return False
        if self._domain.is_stop(token):
            self._terminated = self._matcher.can_end()
            return self._terminated
        if not self._domain.is_generable(token) or not self._accepts(self._matcher, token):
            return False
        self._steps += 1
        return True

    def _advance(self, scout: Matcher, token: int) -> bool:
        """Accept what the mask allows; ``False`` if the engine gives up there."""
        if self._accepts(scout, token):
            return True
        if self.engine_error is None:
            raise RuntimeError(f"the grammar engine refuses token {token}, which its mask allows")
        return False

    def _accepts(self, matcher: Matcher, token: int) -> bool:
        self.engine_error = None
        try:
            return matcher.accept(token)
        except ConstraintTooLarge as error:
            self.engine_error = error
            return False

    def _rollback(self, steps: int) -> None:
        if steps:
            self._matcher.rollback(steps)
            self._steps -= steps
