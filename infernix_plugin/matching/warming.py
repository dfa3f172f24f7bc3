"""Index a vocabulary before the first request comes, so that none waits for it.

What is indexed on first use is used here once: each engine, and each companion where it looks at the vocabulary.
"""

from __future__ import annotations

import contextlib

import numpy as np

from infernix_plugin.errors import ConstraintError
from infernix_plugin.framing.tools.contract import Tool, ToolContract
from infernix_plugin.framing.tools.markup import CALL_OPEN
from infernix_plugin.grammar import interest
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.compiler import ConstraintCompiler
from infernix_plugin.matching.plan import Job

_CONTENT = (
    (OutputConstraint.regex("[^x]+"), "a"),
    (OutputConstraint.grammar('root ::= "a" root "b" | "c"'), "a"),
    (OutputConstraint.json_schema('{"type": "array", "items": {"type": "string"}, "uniqueItems": true}'), '["a","'),
)
"""Constraints, and text behind which a mask is computed: one for each engine, and one for the companion of items."""
_CALLS = ToolContract((Tool("f", "{}"),))
SAMPLES = tuple(Job(constraint) for constraint, _ in _CONTENT)
"""What a process that only plans has to have seen."""
_CALL = "\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter="


def warm(compiler: ConstraintCompiler) -> None:
    """Use everything once. Takes seconds for a large vocabulary; the compiler's cache and its counts stay as they are.

    A vocabulary that cannot write one of the samples is left to its first request.

    Raises:
        CompileAbandoned: the interpreter only waits for this.
    """
    for constraint, text in _CONTENT:
        interest.check()
        with contextlib.suppress(ConstraintError):
            _walk(compiler.build(Job(constraint)), [], text)
    opening = compiler.domain.control_id(CALL_OPEN)
    if opening is not None:
        interest.check()
        with contextlib.suppress(ConstraintError):
            _walk(compiler.build(Job(contract=_CALLS)), [opening], _CALL)


def _walk(compiled: CompiledGrammar, tokens: list[int], text: str) -> None:
    domain = compiled.domain
    session = compiled.session()
    row = np.zeros(domain.mask_words, dtype=np.int32)
    session.fill_mask(row)
    for token in [*tokens, *(domain.byte_token(byte) for byte in text.encode())]:
        if token is None or not session.accept(token):
            return
        session.fill_mask(row)
