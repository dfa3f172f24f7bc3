"""A compiled grammar: what many sessions share."""

from __future__ import annotations

import numpy as np

from infernix_plugin.errors import UnsatisfiableConstraint
from infernix_plugin.grammar.ir import Remark
from infernix_plugin.matching.domain import Bitset, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher
from infernix_plugin.matching.session import Session


class CompiledGrammar:
    """An output language over one vocabulary. Immutable and shared between threads.

    Attributes:
        domain: the vocabulary.
        first_row: the mask before the first token, int32 ``[mask_words]``, read-only; never empty.
        memory_bytes: approximate size, as counted against the cache budget.
        engine: the package that runs it, ``llguidance`` or ``xgrammar``.
        remarks: rules that add nothing to the language, and where.
    """

    def __init__(self, domain: TokenDomain, grammar: EngineGrammar, remarks: tuple[Remark, ...] = ()) -> None:
        """Check that an output can begin.

        Raises:
            UnsatisfiableConstraint: no token may come first and the empty output is not allowed.
            ConstraintTooLarge: the engine gave up on the first mask.
        """
        self.domain = domain
        self.remarks = remarks
        self.engine: str = grammar.engine
        self._grammar = grammar
        matcher = grammar.matcher()
        row = np.zeros(domain.mask_words, dtype=np.int32)
        np.bitwise_and(matcher.fill(row), domain.generable_bits, row)
        if matcher.can_end():
            row |= domain.stop_bits
        if not row.any():
            raise UnsatisfiableConstraint("no output of this model can satisfy the constraint")
        row.flags.writeable = False
        self.first_row: Bitset = row
        self.memory_bytes: int = grammar.memory_bytes + row.nbytes

    def session(self, prefix: bytes = b"") -> Session:
        """A new session at the start, or after ``prefix``: output that is already written.

        Raises:
            InvalidContinuation: no member of the language starts with ``prefix``.
        """
        return Session(self, prefix)

    def grammar_text(self) -> str:
        """The grammar in the notation of :attr:`engine`, for people to read."""
        return self._grammar.text()

    def new_matcher(self) -> Matcher:
        """A new engine matcher at the start of the language."""
        return self._grammar.matcher()
