"""Drafts that a grammar knows: what it forces next, and its whitespace in the style of the output so far.

A function of the committed output alone, so these drafts are one-hot: verifying them is exact whatever they are, and a
wrong guess costs an acceptance, never the distribution.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import Matcher
from infernix_plugin.spec_decode.tokenisation import Tokenisation
from infernix_plugin.spec_decode.whitespace_style import WHITESPACE, WhitespaceStyle

_MOST_BYTES = 12
"""How far to look, in bytes per draft."""

_RECENT_TOKENS = 4
"""How many tokens of the output the tokenizer sees before the text that it splits."""


class Written:
    """What the drafts of one request depend on: how its output ends, and its whitespace."""

    def __init__(self, domain: TokenDomain, before: bytes = b"") -> None:
        """Begin, or go on behind ``before``, which was written without tokens of this output."""
        self._domain = domain
        self._begin()
        self.style.observe(before)

    def observe(self, tokens: Iterable[int]) -> None:
        """Read on. A marker begins another text: what was written before it, reasoning perhaps, says nothing."""
        for token in tokens:
            if self._domain.token_class(token) is not TokenClass.TEXT:
                self._begin()
                continue
            piece = self._domain.token_bytes(token)
            self.style.observe(piece)
            self._recent.append(piece)

    def _begin(self) -> None:
        self.style = WhitespaceStyle()
        self._recent: deque[bytes] = deque(maxlen=_RECENT_TOKENS)

    @property
    def recent(self) -> bytes:
        """The last tokens, from the beginning of a character on."""
        return b"".join(self._recent).lstrip(_CONTINUATION)


_CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that begin no character."""


class GrammarDrafter:
    """Proposes tokens over one vocabulary. Immutable after construction."""

    def __init__(self, domain: TokenDomain, tokenizer: Any = None) -> None:
        """Index the vocabulary.

        Args:
            domain: the vocabulary.
            tokenizer: the model's, which knows the merges that the model was trained on.
        """
        self.domain = domain
        self._tokenisation = Tokenisation.of(domain, tokenizer)
        present = [(byte, token) for byte in range(256) if (token := domain.byte_token(byte)) is not None]
        self._bytes = np.array([byte for byte, _ in present], dtype=np.uint8)
        self._byte_tokens: NDArray[np.int64] = np.array([token for _, token in present], dtype=np.int64)

    def propose(self, scout: Matcher, written: Written, most: int) -> list[int]:
        """Return up to ``most`` tokens that the grammar forces, but for whitespace.

        Args:
            scout: a fork at the frontier; it is advanced.
            written: the output so far.
            most: the number of drafts of a step.
        """
        style = written.style.copy()
        text = b""
        marker: list[int] = []
        endings = [b""]
        try:
            while len(text) < most * _MOST_BYTES:
                step = scout.forced()
                if not step:
                    if not text and style.in_string:
                        return []  # free text: a mask would say the same
                    row = self._legal(scout)
                    single = _single(row)
                    if single is None:
                        following = self._first_bytes(row)
                        endings = _endings(following)
                        step = _guess(following, style)
                    elif self.domain.token_class(single) is TokenClass.TEXT:
                        step = self.domain.token_bytes(single)
                    else:
                        marker, endings = [single], [b""]
                if not step or scout.accept_bytes(step) < len(step):
                    break
                text += step
                style.observe(step)
                endings = [b""]
        except ConstraintTooLarge:
            pass
        return [*self._tokenisation.settled(written.recent, text, endings), *marker][:most]

    def _legal(self, scout: Matcher) -> Bitset:
        row = np.zeros(self.domain.mask_words, dtype=np.int32)
        row = scout.fill(row) & self.domain.generable_bits
        return row | self.domain.stop_bits if scout.can_end() else row

    def _first_bytes(self, row: Bitset) -> bytes:
        """With which bytes the legal text begins. A byte that is no token of its own is overlooked."""
        legal = row[self._byte_tokens >> 5] >> (self._byte_tokens & 31) & 1
        return bytes(self._bytes[legal != 0])


class RequestDrafter:
    """A drafter with the output of one request."""

    def __init__(self, drafter: GrammarDrafter, before: bytes = b"") -> None:
        """Begin behind ``before``, content that the prompt ends with."""
        self._drafter = drafter
        self._written = Written(drafter.domain, before)

    def observe(self, tokens: Iterable[int]) -> None:
        """Read on."""
        self._written.observe(tokens)

    def propose(self, scout: Matcher, most: int) -> list[int]:
        """See :meth:`GrammarDrafter.propose`."""
        return self._drafter.propose(scout, self._written, most)


def _single(row: Bitset) -> int | None:
    """Return the only token of a mask."""
    words = np.flatnonzero(row)
    if len(words) != 1:
        return None
    word = int(row[words[0]]) & 0xFFFFFFFF
    return None if word & (word - 1) else 32 * int(words[0]) + word.bit_length() - 1


def _guess(following: bytes, style: WhitespaceStyle) -> bytes:
    """Return the bytes that follow, or nothing where the grammar leaves a choice that is more than whitespace.

    Whitespace comes before such a choice too, if it is the same for all that may be chosen.
    """
    others = [byte for byte in following if byte not in WHITESPACE]
    if len(others) < len(following) and not style.keeps:
        return b""
    rests = {style.rest(byte) for byte in others}
    rest = rests.pop() if len(rests) == 1 else b""
    if rest and rest[0] in following:
        return rest
    return bytes(others) if len(others) == 1 else b""


def _endings(following: bytes) -> list[bytes]:
    """Return a few of the texts that may follow: where letters and digits are legal, those are the likely ones."""
    words = [bytes([byte]) for byte in b"a1" if byte in following]
    return words or [bytes([byte]) for byte in following] or [b""]
