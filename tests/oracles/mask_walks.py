"""Outputs drawn through masks, token by token, as a sampler would."""

from __future__ import annotations

import random

import numpy as np

from infernix_plugin.matching import CompiledGrammar, MaskState
from tests.oracles.json_vocabulary import DOMAIN, PIECES, PREFERRED, STOP

_ENDING = [STOP, *(PIECES.index(text.encode()) for text in '"]}')]
_PATIENCE = 400


def drawn(compiled: CompiledGrammar, rng: random.Random, steps: int) -> bytes | None:
    """An output of :data:`DOMAIN`: at random for ``steps`` tokens, then as short as it is easily made.

    Returns ``None`` if it does not end soon, or a vocabulary without enough tokens leaves it no way on.
    """
    session, output = compiled.session(), bytearray()
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    for step in range(steps + _PATIENCE):
        if session.fill_mask(row) is not MaskState.READY:
            return None
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        preferred = [token for token in allowed if token in PREFERRED] or allowed
        choices = preferred if rng.random() < 0.8 else allowed
        if step >= steps:
            choices = next(([token] for token in _ENDING if token in allowed), preferred)
        token = rng.choice(choices)
        assert session.accept(token)
        if token == STOP:
            return bytes(output)
        output += PIECES[token]
    return None
