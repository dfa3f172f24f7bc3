"""Whether an item that is under way can still become different from every item that was written before."""

from __future__ import annotations

import numpy as np

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.matching.companions.position import SPACE, Expects, Position, Text
from infernix_plugin.matching.companions.vocabulary import Vocabulary
from infernix_plugin.matching.engines.base import Matcher

MAX_LOOKS = 256
"""Most masks of the engine that one search may ask for. A search that is given up counts as a success: the output may
then run into a dead end, which fails the request, but no repetition gets through."""

_STRINGS = (Expects.IN_STRING, Expects.IN_KEY)


def leads_on(matcher: Matcher, position: Position, text: Text, vocabulary: Vocabulary) -> bool:
    """Whether something can be written from here after which the position is not doubtful any more.

    The search goes byte by byte along what may still become a repetition; it ends as soon as a legal byte leaves that.

    Args:
        matcher: the engine at that position; it may be used up.
        position: a doubtful one.
        text: what follows positions.
        vocabulary: the tokens of the engine's masks.
    """
    pending = [(matcher, position)]
    row = np.empty(vocabulary.mask_words, dtype=np.int32)
    for _ in range(MAX_LOOKS):
        if not pending:
            return False
        matcher, position = pending.pop()
        if position.frame is not None and position.exhausted and position.frame.place.exact:
            continue
        try:
            following = vocabulary.first_bytes(matcher.fill(row))
        except ConstraintTooLarge:
            return True
        doubtful: list[tuple[int, Position]] = []
        for byte in following:
            if byte in SPACE and position.expects not in _STRINGS:
                continue  # what may come after whitespace may come without it
            after = text.advance(position, bytes([byte]))
            if after is not None and not after.doubtful:
                return True
            if after is not None:
                doubtful.append((byte, after))
        for byte, after in doubtful:
            fork = matcher.fork()
            try:
                if fork.accept_bytes(bytes([byte])):
                    pending.append((fork, after))
            except ConstraintTooLarge:
                return True
    return True
