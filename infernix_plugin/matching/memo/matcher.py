"""An engine's masks, computed once for each position of a grammar and shared by everything that comes to it."""

from __future__ import annotations

import numpy as np

from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.matching.domain import Bitset, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher
from infernix_plugin.matching.memo.account import Account
from infernix_plugin.matching.memo.machine import LOST, UNDECIDED, Machine, State, Terminals


class RememberedGrammar:
    """An engine's grammar whose masks are remembered. They must be exact, as they stand for the language everywhere.

    Attributes:
        inner: the engine's.
        grammar: what the engine made it of.
        domain: the vocabulary.
        machine: the positions of the language.
        account: says whether to follow a text.
    """

    def __init__(self, inner: EngineGrammar, grammar: Grammar, domain: TokenDomain, terminals: Terminals) -> None:
        """Put a memory around ``inner``, which the engine made of ``grammar``."""
        self.inner = inner
        self.grammar = grammar
        self.domain = domain
        self.machine = Machine(grammar.start, grammar.rules, terminals)
        self.account = Account()

    @property
    def engine(self) -> str:
        """The engine's package."""
        return self.inner.engine

    @property
    def memory_bytes(self) -> int:
        """Approximate size in bytes, without what is remembered: that has a budget of its own."""
        return self.inner.memory_bytes

    def text(self) -> str:
        """The grammar as the engine runs it."""
        return self.inner.text()

    def matcher(self) -> Matcher:
        """A new matcher at the start of the language."""
        if not self.account.enter_matcher():
            return self.inner.matcher()
        return _Matcher(self, _Place(None, b"", UNDECIDED))


class _Place:
    """Where a matcher is, and the way to it: what was written last, a token or raw bytes, and where."""

    __slots__ = ("before", "state", "written")

    def __init__(self, before: _Place | None, written: int | bytes, state: State) -> None:
        self.before = before
        self.written = written
        self.state = state


class _Matcher:
    """Follows the output by states and lets the engine's own matcher follow only where a mask is not known."""

    __slots__ = ("_engine", "_engine_place", "_forked", "_grammar", "_place")

    def __init__(self, grammar: RememberedGrammar, place: _Place, forked: _Matcher | None = None) -> None:
        self._grammar = grammar
        self._place = place
        self._engine: Matcher | None = None
        self._engine_place = place
        self._forked = forked

    def fill(self, row: Bitset) -> Bitset:
        grammar, state = self._grammar, self._state()
        mask = state.mask  # another thread may forget it at any time
        if mask is not None:
            grammar.account.hit()
            mask.write(row)
            return row
        allowed = self._follow().fill(row)
        if state is not LOST:
            if grammar.account.affords_miss(grammar.machine.work):
                np.bitwise_and(allowed, grammar.domain.generable_bits, row)
                state.remember(row)
                return row
            self._place.state = LOST
        return allowed

    def accept(self, token: int) -> bool:
        state = self._state()
        if state is LOST:
            if not self._follow().accept(token):
                return False
            self._place = self._engine_place = _Place(self._place, token, LOST)
            return True
        target, mask = state.steps.get(token), state.mask
        by_engine = target is None and mask is None
        if target is None:
            if not (self._follow().accept(token) if mask is None else mask.allows(token)):
                return False
            target = state.over(token, self._grammar.domain.written(token)) or LOST
        if target is LOST and not by_engine:
            by_engine = self._follow().accept(token)
            if not by_engine:
                return False
        self._place = _Place(self._place, token, target)
        if by_engine:
            self._engine_place = self._place
        return True

    def accept_bytes(self, prefix: bytes) -> int:
        legal = self._follow().accept_bytes(prefix)
        state: State | None = self._state()
        for byte in prefix:
            state = state.after(byte) if state is not None and not state.names_tokens else LOST
        self._place = self._engine_place = _Place(self._place, prefix, state or LOST)
        return legal

    def fork(self) -> Matcher:
        return _Matcher(self._grammar, self._place, self)

    def rollback(self, steps: int) -> None:
        undone = 0
        for _ in range(steps):
            while isinstance(self._place.written, bytes):
                self._step_back()
            undone += self._step_back()
        if undone and self._engine is not None:
            self._engine.rollback(undone)

    def forced(self) -> bytes:
        state = self._state()
        text = state.forced
        if text is None:
            text = self._follow().forced()
            if state is not LOST:
                state.forced = text
        return text

    def can_end(self) -> bool:
        state = self._state()
        return self._follow().can_end() if state is LOST else state.accepting

    def _state(self) -> State:
        """Where this is. Whether to follow at all is decided at the first look: others may have come by then."""
        place = self._place
        if place.state is UNDECIDED:
            place.state = self._grammar.machine.start() if self._grammar.account.used_again() else LOST
        return place.state

    def _step_back(self) -> bool:
        """Go back to the place before; whether the engine's matcher had been past it."""
        place, before = self._place, self._place.before
        if before is None:
            raise RuntimeError("rollback past the start")
        self._place = before
        if self._engine_place is not place:
            return False
        self._engine_place = before
        return self._engine is not None

    def _follow(self) -> Matcher:
        """The engine's matcher, brought here.

        Raises:
            ConstraintTooLarge: it gave up on the way.
        """
        engine = self._engine
        if engine is None:
            engine = self._engine = self._new_engine()
        ahead: list[_Place] = []
        place = self._place
        while place is not self._engine_place:
            ahead.append(place)
            if place.before is None:
                raise RuntimeError("the engine is not on the way to this place")
            place = place.before
        for place in reversed(ahead):
            written = place.written
            if not (engine.accept_bytes(written) if isinstance(written, bytes) else engine.accept(written)):
                raise RuntimeError(f"the grammar engine refuses {written!r}, which its mask allows")
            self._engine_place = place
        return engine

    def _new_engine(self) -> Matcher:
        """A fork of the engine's matcher where this one was forked, or a new one with all of the way before it."""
        origin, self._forked = self._forked, None
        if origin is not None and origin._place is self._engine_place:
            return origin._follow().fork()
        place = self._place
        while place.before is not None:
            place = place.before
        self._engine_place = place
        return self._grammar.inner.matcher()
