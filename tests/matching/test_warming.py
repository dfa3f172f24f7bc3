"""Warming: what is indexed on first use is indexed before, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.matching.cache import CacheStats
from infernix_plugin.matching.warming import warm
from tests.framing.calling import CONTROL, PIECES, STOP

UNIQUE = OutputConstraint.json_schema('{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}')
CALLS = ToolContract((Tool("g"),), CallChoice.REQUIRED)


class Watched(TokenDomain):
    """Counts the tokens that are looked at one by one."""

    looks = 0

    def token_bytes(self, token):
        self.looks += 1
        return super().token_bytes(token)

    def written(self, token):
        self.looks += 1
        return super().written(token)


def looks_of_first_uses(*, warmed: bool) -> list[int]:
    domain = Watched(PIECES, control=CONTROL, stop=[STOP])
    compiler = ConstraintCompiler(domain)
    if warmed:
        warm(compiler)
        assert compiler.stats() == CacheStats()
    found = []
    row = np.zeros(domain.mask_words, dtype=np.int32)
    for prepare, before in (
        (lambda: compiler.prepare(OutputConstraint.regex("[a-c]+")), [97]),
        (lambda: compiler.prepare(OutputConstraint.grammar('root ::= "(" root ")" | "x"')), [40]),
        (lambda: compiler.prepare(UNIQUE), [*b"[1,"]),
        (lambda: compiler.prepare_tools(CALLS), [CONTROL["<tool_call>"]]),
    ):
        domain.looks = 0
        session = prepare().compiled.session()
        for token in before:
            session.fill_mask(row)
            assert session.accept(token)
        session.fill_mask(row)
        found.append(domain.looks)
    return found


def test_the_first_constraint_of_each_kind_looks_at_no_vocabulary():
    cold, warmed = looks_of_first_uses(warmed=False), looks_of_first_uses(warmed=True)
    assert max(warmed) < len(PIECES)
    assert max(cold) >= len(PIECES)


@pytest.mark.parametrize("pieces", [[b"a", b""], [b"\xff", b""]], ids=["few", "none"])
def test_a_vocabulary_that_cannot_write_the_samples_is_left_alone(pieces):
    warm(ConstraintCompiler(TokenDomain(pieces, stop=[1])))
