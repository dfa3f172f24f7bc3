"""Drafts that a grammar knows: what it forces next, and its whitespace in the style of the output so far.

A function of the committed output alone, so these drafts are one-hot: verifying them is exact whatever they are, and a
wrong guess costs an acceptance, never the distribution.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import Matcher

WHITESPACE = frozenset(b" \t\n\r")
_MOST_BYTES = 12
"""How far to look, in bytes per draft. One mask is computed per byte."""


class WhitespaceStyle:
    """Which whitespace the output last wrote after each byte that is not whitespace; none where it wrote nothing."""

    def __init__(self) -> None:
        self._after: dict[int, bytes] = {}
        self._last: int | None = None

    def observe(self, text: bytes) -> None:
        """Read on; ``text`` may end inside a run of whitespace."""
        for byte in text:
            if byte not in WHITESPACE:
                self._last = byte
                self._after[byte] = b""
            elif self._last is not None:
                self._after[self._last] += bytes([byte])

    def copy(self) -> WhitespaceStyle:
        """An independent copy, to read on beyond the output."""
        other = WhitespaceStyle()
        other._after, other._last = dict(self._after), self._last
        return other

    def rest(self, previous: WhitespaceStyle) -> bytes:
        """What the output's style still has to write here; ``previous`` knows the byte's occurrence before this one."""
        if self._last is None:
            return b""
        usual, written = previous._after.get(self._last, b""), self._after[self._last]
        return usual[len(written) :] if usual.startswith(written) else b""


class StyleTracker:
    """The whitespace of the output up to its last byte that is not whitespace, and behind it."""

    def __init__(self) -> None:
        self.before = WhitespaceStyle()
        self._open = b""

    def observe(self, text: bytes) -> None:
        """Read on."""
        self._open += text
        last = max((place for place, byte in enumerate(self._open) if byte not in WHITESPACE), default=-1)
        if last > 0:
            self.before.observe(self._open[:last])
            self._open = self._open[last:]

    def copy(self) -> StyleTracker:
        """An independent copy."""
        other = StyleTracker()
        other.before, other._open = self.before.copy(), self._open
        return other

    def rest(self) -> bytes:
        """Whitespace that is still to come here, if it is as it was after the same byte before."""
        here = self.before.copy()
        here.observe(self._open)
        return here.rest(self.before)


class GrammarDrafter:
    """Proposes tokens over one vocabulary. Immutable after construction."""

    def __init__(self, domain: TokenDomain) -> None:
        """Index the vocabulary's text tokens."""
        self._domain = domain
        self._ids: dict[bytes, int] = {}
        first = np.full(domain.vocab_size, -1, dtype=np.int16)
        for token in domain.ids_of_class(TokenClass.TEXT):
            piece = domain.token_bytes(token)
            self._ids.setdefault(piece, token)
            first[token] = piece[0]
        self._first: NDArray[np.int16] = first
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._ids), default=0)

    def propose(self, scout: Matcher, style: StyleTracker, most: int) -> list[int]:
        """Return up to ``most`` tokens that the grammar forces, but for whitespace.

        Args:
            scout: a fork at the frontier; it is advanced.
            style: of the output so far.
            most: the number of drafts of a step.
        """
        style = style.copy()
        text = b""
        while len(text) < most * _MOST_BYTES:
            try:
                legal = self._legal(scout)
                if len(legal) == 1 and self._first[legal[0]] < 0:  # a marker or a stop token
                    return (self.tokenize(text) + legal)[:most]
                step = self._next(legal, style)
                if not step or scout.accept_bytes(step) < len(step):
                    break
            except ConstraintTooLarge:
                break
            text += step
            style.observe(step)
        return self.tokenize(text[: self._settled(text)])[:most]

    def tokenize(self, text: bytes) -> list[int]:
        """Split by longest match, up to the first byte that no token starts with."""
        tokens: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is None:
                break
            tokens.append(self._ids[text[start:end]])
            start = end
        return tokens

    def _legal(self, scout: Matcher) -> list[int]:
        row = np.zeros(self._domain.mask_words, dtype=np.int32)
        row = scout.fill(row) & self._domain.generable_bits
        if scout.can_end():
            row |= self._domain.stop_bits
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        return [int(token) for token in np.flatnonzero(bits)]

    def _next(self, legal: Sequence[int], style: StyleTracker) -> bytes:
        """The bytes that follow, or nothing where the grammar leaves a choice that is more than whitespace."""
        first = {int(byte) for byte in np.unique(self._first[list(legal)])}
        written = first if len(first) == 1 else first - WHITESPACE
        if len(written) != 1 or -1 in written:
            return b""
        guess = style.rest()
        return guess if guess and guess[0] in first else bytes(written)

    def _settled(self, text: bytes) -> int:
        """Where the tokens of ``text`` no longer depend on what follows it."""
        start = 0
        for token in self.tokenize(text):
            if self._extends(text[start:]):
                return start
            start += len(self._domain.token_bytes(token))
        return start

    def _extends(self, rest: bytes) -> bool:
        """Whether a token begins with ``rest`` and goes on."""
        place = bisect_right(self._sorted, rest)
        return place < len(self._sorted) and self._sorted[place].startswith(rest)
