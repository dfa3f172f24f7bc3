"""What the session needs from a grammar engine."""

from __future__ import annotations

from typing import Protocol

from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.matching.domain import Bitset


class Matcher(Protocol):
    """A mutable position in the language of one grammar. Owned by one session; not thread-safe."""

    def fill(self, row: Bitset) -> Bitset:
        """The tokens that may come next, in ``row`` (int32, contiguous, ``mask_words`` long) or beside it.

        Returned is ``row`` itself, which then holds generable tokens only, or a bitset of the same size that the next
        call overwrites, while ``row`` is left as it was: there, bits of tokens that are not generable, of stop tokens
        and of ids past the vocabulary have no meaning. Leaves the position as it is.

        Raises:
            ConstraintTooLarge: the engine gave up on this position; the position stays as it was.
        """

    def accept(self, token: int) -> bool:
        """Advance by one generable token as one step; ``False`` and no change if it is not legal here.

        Raises:
            ConstraintTooLarge: the engine gave up on the position behind the token; the position stays as it was.
        """

    def accept_bytes(self, prefix: bytes) -> int:
        """Advance by raw bytes, which may end inside a character; returns how many were legal.

        If that is fewer than all, the position is undefined and the matcher must be dropped. Not undone by
        :meth:`rollback`.
        """

    def fork(self) -> Matcher:
        """An independent matcher at this position; what is done with it leaves no trace in this one."""

    def rollback(self, steps: int) -> None:
        """Undo the last ``steps`` accepted tokens exactly. May cost as much as accepting everything before them."""

    def forced(self) -> bytes:
        """Text with which every continuation begins, perhaps not all of it. Leaves the position as it is.

        Raises:
            ConstraintTooLarge: the engine gave up on this position; the position stays as it was.
        """

    def can_end(self) -> bool:
        """Whether what was accepted so far is a member of the language."""


class EngineGrammar(Protocol):
    """A compiled grammar: immutable and shared between threads."""

    @property
    def memory_bytes(self) -> int:
        """Approximate size in bytes."""

    @property
    def engine(self) -> str:
        """The name of the engine's package."""

    def text(self) -> str:
        """The grammar as the engine runs it, in the engine's own notation."""

    def matcher(self) -> Matcher:
        """A new matcher at the start of the language."""


class Engine(Protocol):
    """A compiler bound to one vocabulary; thread-safe."""

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile a grammar.

        Raises:
            ConstraintTooLarge: past a limit of the engine.
        """
