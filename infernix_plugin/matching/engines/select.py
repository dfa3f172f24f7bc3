"""Which engine runs a grammar."""

from __future__ import annotations

from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar
from infernix_plugin.matching.engines.xgrammar import XgrammarEngine


class Engines:
    """The engines over one vocabulary, each indexed on first use."""

    def __init__(self, domain: TokenDomain, cache_bytes: int) -> None:
        """Bind to a vocabulary; ``cache_bytes`` bounds what an engine keeps between grammars."""
        self.xgrammar = XgrammarEngine(domain, cache_bytes=cache_bytes)

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile with the engine that fits the grammar.

        Raises:
            ConstraintTooLarge: past a limit of the engine.
        """
        return self.xgrammar.compile(grammar)
