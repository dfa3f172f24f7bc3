"""An output as long as the engine's limits allow ends with the engine's reason, not with a broken engine."""

import json

import numpy as np

from infernix_plugin import ConstraintCompiler, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.errors import ConstraintTooLarge

LONG = b"a" * 64


def test_a_counted_string_beyond_the_states_of_a_lexer():
    pieces = [b'"', b"a", LONG, b"<end>"]
    compiler = ConstraintCompiler(TokenDomain(pieces, stop=[3]))
    compiled = compiler.compile(OutputConstraint.json_schema(json.dumps({"type": "string", "maxLength": 1_000_000})))
    session, neighbour = compiled.session(), compiled.session()
    assert session.accept(0)
    assert neighbour.accept(0)
    accepted = 0
    while session.accept(2):
        accepted += 1
        assert accepted < 1_000_000 // len(LONG), "the engine has no such limit any more"
    row = np.zeros(compiled.domain.mask_words, dtype=np.int32)
    assert session.fill_mask(row) is MaskState.DEAD_END
    assert isinstance(session.engine_error, ConstraintTooLarge)
    assert neighbour.accept(1)
    assert neighbour.accept(0)
    assert neighbour.complete
