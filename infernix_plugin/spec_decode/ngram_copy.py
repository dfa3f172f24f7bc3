"""n-gram copies as drafts: what followed the longest earlier occurrence of the latest tokens.

vLLM's own ``custom_class`` method runs it on the V1 model runner::

    speculative_config = {
        "method": "custom_class",
        "model": "infernix_plugin.spec_decode.ngram_copy.NgramCopyProposer",
        "num_speculative_tokens": 3,
    }

A copy is not sampled, so its q is one-hot and verification is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]

MIN_MATCH = 3
"""Fewest tokens that must repeat."""
MAX_MATCH = 32
"""Matches count as equally long from here on."""
MAX_CANDIDATES = 32
"""Earlier occurrences that are looked at, newest first."""
WINDOW = 1 << 15
"""Tokens of one request that stay indexed; at most twice as many are held."""


class NgramIndex:
    """Earlier occurrences of one request's n-grams. Extending costs the same per token however long the text is."""

    def __init__(self, min_match: int = MIN_MATCH, max_match: int = MAX_MATCH, window: int = WINDOW) -> None:
        self._min_match = min_match
        self._max_match = max_match
        self._window = window
        self._base = 0
        self._kept: Tokens = np.zeros(0, dtype=np.int32)
        self._newest: dict[bytes, int] = {}
        self._previous = [0] * min_match

    def extend(self, tokens: Tokens) -> None:
        """Bring the index up to ``tokens``, int32[n], the whole text so far; another text starts it again."""
        known = self._base + len(self._kept)
        if len(tokens) < known or not np.array_equal(tokens[self._base : known], self._kept):
            self._restart(tokens, max(0, len(tokens) - self._window))
        elif len(tokens) - self._base > 2 * self._window:
            self._restart(tokens, len(tokens) - self._window)
        else:
            self._kept = tokens[self._base :].copy()
        # The last n-gram stays out until something follows it, so that the text never matches itself.
        for end in range(max(self._min_match, len(self._previous)), len(self._kept)):
            gram = self._gram(end)
            self._previous.append(self._newest.get(gram, 0))
            self._newest[gram] = end

    def copy(self, limit: int) -> list[int]:
        """Return ``limit`` tokens that followed the longest match, the newest of several; nothing without a match.

        A match that reaches the end of the text is taken to repeat itself.
        """
        length = len(self._kept)
        if length <= self._min_match:
            return []
        best, longest = 0, 0
        end = self._newest.get(self._gram(length), 0)
        for _ in range(MAX_CANDIDATES):
            if not end or longest == self._max_match:
                break
            matched = self._matched(end)
            if matched > longest:
                best, longest = end, matched
            end = self._previous[end]
        return [int(self._kept[best + step % (length - best)]) for step in range(limit)] if longest else []

    def _matched(self, end: int) -> int:
        """Return how many tokens before ``end`` equal the latest ones."""
        most = min(end, self._max_match)
        equal = self._kept[end - most : end] == self._kept[len(self._kept) - most :]
        return most if equal.all() else int(np.argmin(equal[::-1]))

    def _gram(self, end: int) -> bytes:
        return self._kept[end - self._min_match : end].tobytes()

    def _restart(self, tokens: Tokens, base: int) -> None:
        self._base = base
        self._kept = tokens[base:].copy()
        self._newest = {}
        self._previous = [0] * self._min_match


class NgramCopyProposer:
    """Proposes copies for every row of a batch, where there is a match."""

    def __init__(self, vllm_config: Any) -> None:
        """Take the number of drafts and the longest text from vLLM's configuration."""
        self._drafts = int(vllm_config.speculative_config.num_speculative_tokens)
        self._max_length = int(vllm_config.model_config.max_model_len)
        self._rows: dict[int, NgramIndex] = {}

    def load_model(self, *_: Any, **__: Any) -> None:
        """Load nothing: vLLM's CPU runner calls this for every proposer."""

    def propose(
        self, sampled_token_ids: list[list[int]], num_tokens_no_spec: Tokens, token_ids_cpu: Tokens, **_: Any
    ) -> list[list[int]]:
        """Return up to K drafts for each row.

        Args:
            sampled_token_ids: what this step committed to each row; a row without any gets no drafts.
            num_tokens_no_spec: int[B], length of each row's text, the committed tokens included.
            token_ids_cpu: int32[B, max_model_len], the texts.
        """
        self._rows = {row: index for row, index in self._rows.items() if row < len(sampled_token_ids)}
        drafts: list[list[int]] = []
        for row, sampled in enumerate(sampled_token_ids):
            length = int(num_tokens_no_spec[row])
            limit = min(self._drafts, self._max_length - length)
            if not sampled or limit <= 0:
                drafts.append([])
                continue
            index = self._rows.setdefault(row, NgramIndex())
            index.extend(token_ids_cpu[row, :length])
            drafts.append(index.copy(limit))
        return drafts
