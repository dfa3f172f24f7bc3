"""Constraints as deep as ``max_nesting`` allows compile, whatever stands in the middle."""

from __future__ import annotations

import numpy as np
import pytest

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import ConstraintCompiler, MaskState
from tests.matching.support import DOMAIN, PIECES

A = PIECES.index(b"a")
DEPTH = GrammarOptions().max_nesting - 2


def nested(innermost: str, depth: int = DEPTH) -> str:
    return '("a" ' * depth + innermost + ' | "b")' * depth


@pytest.mark.parametrize(
    "constraint",
    [
        OutputConstraint.grammar(f"root ::= {nested(f'<[{A}]>')}"),
        OutputConstraint.grammar(f"root ::= {nested(f'(!<[{A}]> | !<[{A + 1}]>)', DEPTH - 1)}"),
        OutputConstraint.grammar(f"root ::= {nested('root')}"),
        OutputConstraint.grammar("root ::= " + nested('"c"')),
        OutputConstraint.grammar("root ::= " + '"a" (' * DEPTH + "root" + ")? " * DEPTH),
        OutputConstraint.regex("(a" * DEPTH + "|b)?" * DEPTH),
    ],
    ids=["token", "tokens_but", "recursive", "regular", "optional_recursive", "regex"],
)
def test_the_deepest_constraints_compile(constraint: OutputConstraint) -> None:
    session = ConstraintCompiler(DOMAIN).compile(constraint).session()
    for _ in range(DEPTH // 2):
        row = np.zeros((DOMAIN.vocab_size + 31) // 32, dtype=np.int32)
        assert session.fill_mask(row) is MaskState.READY
        assert session.accept(A)


@pytest.mark.parametrize(
    "constraint",
    [
        OutputConstraint.grammar(f"root ::= {nested(f'<[{A}]>', 2 * DEPTH)}"),
        OutputConstraint.regex("(a" * 2 * DEPTH + "|b)" * 2 * DEPTH),
    ],
)
def test_deeper_ones_are_refused_by_name(constraint: OutputConstraint) -> None:
    with pytest.raises(ConstraintTooLarge, match="max_nesting"):
        ConstraintCompiler(DOMAIN).compile(constraint)
