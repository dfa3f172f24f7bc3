"""n-gram copies as drafts: what followed the longest earlier occurrence of the latest tokens.

A copy is a function of the committed text and was not sampled, so its q is one-hot and verification is exact.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CopyBounds:
    """What counts as a match, and how much is remembered. All in tokens, but for ``candidates``.

    Attributes:
        min_match: fewest tokens that must repeat.
        max_match: matches count as equally long from here on.
        candidates: earlier occurrences that are looked at, newest first.
        window: tokens of one request that stay indexed; at most twice as many are held.
    """

    min_match: int = 3
    max_match: int = 32
    candidates: int = 32
    window: int = 1 << 15


class NgramIndex:
    """Earlier occurrences of one request's n-grams. Extending costs the same per token however long the text is."""

    def __init__(self, bounds: CopyBounds) -> None:
        self._bounds = bounds
        self._base = 0
        self._buffer: Tokens = np.empty(64, dtype=np.int32)
        self._length = 0
        self._newest: dict[bytes, int] = {}
        self._previous: list[int] = []

    def extend(self, text: Tokens) -> None:
        """Bring the index up to ``text``, int32[n], the whole text so far; another text starts it again."""
        known = self._base + self._length
        if len(text) < known or not np.array_equal(text[self._base : known], self._buffer[: self._length]):
            self._restart(text)
        else:
            self.append(text[known:])

    def append(self, tokens: Tokens) -> None:
        """Read on: ``tokens``, int32[m], follow what is known."""
        length = self._length + len(tokens)
        if length > 2 * self._bounds.window:
            self._restart(np.concatenate((self._buffer[: self._length], tokens)), self._base)
            return
        if length > len(self._buffer):
            self._buffer = np.resize(self._buffer, max(length, 2 * len(self._buffer)))
        self._buffer[self._length : length] = tokens
        self._length = length
        # The last n-gram stays out until something follows it, so that the text never matches itself.
        for end in range(len(self._previous), length):
            if end < self._bounds.min_match:
                self._previous.append(0)
                continue
            gram = self._gram(end)
            self._previous.append(self._newest.get(gram, 0))
            self._newest[gram] = end

    def copy(self, limit: int) -> list[int]:
        """Return ``limit`` tokens that followed the longest match, the newest of several; nothing without a match.

        A match that reaches the end of the text is taken to repeat itself.
        """
        length, most = self._length, self._bounds.max_match
        if length <= self._bounds.min_match:
            return []
        best, longest = 0, 0
        end = self._newest.get(self._gram(length), 0)
        for _ in range(self._bounds.candidates):
            if not end or longest == most:
                break
            matched = self._matched(end)
            if matched > longest:
                best, longest = end, matched
            end = self._previous[end]
        return [int(self._buffer[best + step % (length - best)]) for step in range(limit)] if longest else []

    def _matched(self, end: int) -> int:
        """Return how many tokens before ``end`` equal the latest ones."""
        most = min(end, self._bounds.max_match)
        equal = self._buffer[end - most : end] == self._buffer[self._length - most : self._length]
        return most if equal.all() else int(np.argmin(equal[::-1]))

    def _gram(self, end: int) -> bytes:
        return self._buffer[end - self._bounds.min_match : end].tobytes()

    def _restart(self, text: Tokens, base: int = 0) -> None:
        """Index the last window of a text that begins at position ``base``."""
        cut = max(0, len(text) - self._bounds.window)
        self._base = base + cut
        self._length = 0
        self._newest = {}
        self._previous = []
        self.append(text[cut:])


class NgramCopies:
    """The indexes of all requests, by request id."""

    def __init__(self, bounds: CopyBounds) -> None:
        self._bounds = bounds
        self._indexes: dict[str, NgramIndex] = {}

    def propose(self, request_id: str, text: Tokens, latest: Tokens, limit: int) -> list[int]:
        """Return ``limit`` drafts for one request, or none without a match.

        Args:
            request_id: of the request.
            text: int32[n], its tokens before this step.
            latest: int32[m], what the step committed.
            limit: the number of drafts.
        """
        index = self._indexes.get(request_id)
        if index is None:
            index = self._indexes[request_id] = NgramIndex(self._bounds)
        index.extend(text)
        index.append(latest)
        return index.copy(limit)

    def retain(self, request_ids: Container[str]) -> None:
        """Drop the indexes of all other requests."""
        for request_id in [known for known in self._indexes if known not in request_ids]:
            del self._indexes[request_id]
