"""A mask that is kept. Most hold few tokens, and then what is kept is small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.matching.domain import Bitset

SPARSE = 8
"""One word in so many may hold a token where only such words are kept."""
_OBJECT_BYTES = 400


class KnownMask:
    """A copy of a mask row. Immutable.

    Attributes:
        bytes: its size.
    """

    __slots__ = ("_values", "_words", "bytes")

    def __init__(self, row: Bitset) -> None:
        """Copy ``row``, int32 ``[mask_words]``."""
        words = (row != 0).nonzero()[0]
        self._words: NDArray[np.intp] | None = words if words.size * SPARSE <= row.size else None
        # To copy a whole row takes longer than to compute many a mask: it is the first to touch that memory.
        self._values: Bitset = row.copy() if self._words is None else row[words]
        self.bytes: int = _OBJECT_BYTES + self._values.nbytes + (0 if self._words is None else words.nbytes)

    def write(self, row: Bitset) -> None:
        """Copy the mask to ``row``."""
        if self._words is None:
            np.copyto(row, self._values)
        else:
            row.fill(0)
            row[self._words] = self._values

    def allows(self, token: int) -> bool:
        """Whether the token's bit is set."""
        word = token >> 5
        if self._words is not None:
            place = int(self._words.searchsorted(word))
            if place == self._words.size or self._words[place] != word:
                return False
            word = place
        return bool(int(self._values[word]) >> (token & 31) & 1)
