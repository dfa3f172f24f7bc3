"""Adapter for harnesses that measure engines after the method of MaskBench (guidance-ai/jsonschemabench).

Such a harness calls ``factory(tokenizer_directory)``, compiles schema texts, walks through token sequences with the
matchers and times both. Options of :class:`~infernix_plugin.grammar.options.GrammarOptions` may follow by name.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from numpy.typing import NDArray

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import CompiledGrammar, ConstraintCompiler, Session, TokenDomain
from infernix_plugin.matching.warming import warm


class MaskbenchEngine:
    """JSON Schema through the compiler that requests use, cache included."""

    def __init__(self, compiler: ConstraintCompiler) -> None:
        self._compiler = compiler

    def compile_json_schema(self, schema_text: str) -> CompiledGrammar:
        """Compile one schema.

        Raises:
            ValueError: the schema is refused; the text says why.
        """
        try:
            return self._compiler.compile(OutputConstraint.json_schema(schema_text))
        except ConstraintError as error:
            raise ValueError(str(error)) from error

    def matcher(self, compiled: CompiledGrammar) -> MaskbenchMatcher:
        """A fresh matcher at the start of the language."""
        return MaskbenchMatcher(compiled.session())

    @staticmethod
    def versions() -> dict[str, str]:
        """What was measured."""
        return {name: version(name) for name in ("infernix-plugin", "xgrammar", "llguidance")}


class MaskbenchMatcher:
    """One session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def fill(self, row: NDArray[Any]) -> None:
        """Write the legal next tokens into ``row``, int32 ``[mask_words]``."""
        self._session.fill_mask(row)

    def accept(self, token_id: int) -> bool:
        """Commit one token; ``False`` if it is not legal."""
        return self._session.accept(token_id)

    def can_end(self) -> bool:
        """Whether the text so far is a whole member of the language."""
        return self._session.complete


def factory(tokenizer_directory: str, *, vocab_size: int = 151_936, **options: Any) -> MaskbenchEngine:
    """The engine for the vocabulary in ``tokenizer_directory``; ``vocab_size`` counts padding ids."""
    domain = TokenDomain.from_pretrained(tokenizer_directory, vocab_size=vocab_size)
    compiler = ConstraintCompiler(domain, options=GrammarOptions(**options))
    warm(compiler)  # as at the start of an engine
    return MaskbenchEngine(compiler)
