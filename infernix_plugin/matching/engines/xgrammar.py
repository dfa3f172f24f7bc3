"""xgrammar: an Earley matcher with masks precomputed per grammar rule. Runs grammars without And and Not."""

from __future__ import annotations

import threading
from typing import Any

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.grammar.emit import emit
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.normalize import normalize
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher

_UNMATCHABLE = b"\xff"
"""A byte that no UTF-8 text contains: put before a control token's spelling, the token matches by its id only."""

_RULE_CACHE_FAULT = "per_rule_fsm_hashes"
"""Part of the message with which xgrammar 0.2.8's cache of compiled rules fails on some valid grammars."""


class XgrammarEngine:
    """Compiles grammars with xgrammar, on the calling thread."""

    def __init__(self, domain: TokenDomain, *, cache_bytes: int) -> None:
        """Bind to a vocabulary; ``cache_bytes`` bounds xgrammar's cache of rules shared between grammars."""
        self._domain = domain
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self._vocabularies: dict[bytes, _Vocabulary] = {}

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile a grammar that has neither And nor Not.

        Raises:
            ValueError: it has.
        """
        text = emit(normalize(grammar))
        return _Compiled(self._compile(self._vocabulary(_UNMATCHABLE), "compile_grammar", text))

    def compile_structural_tag(self, text: str) -> EngineGrammar:
        """Compile the JSON text of an xgrammar structural tag, in which control tokens also match by their spelling.

        Raises:
            InvalidGrammar: xgrammar refuses it.
        """
        try:
            return _Compiled(self._compile(self._vocabulary(b""), "compile_structural_tag", text))
        except (RuntimeError, ValueError) as error:
            raise InvalidGrammar(f"the structural tag is not valid: {_first_line(error)}") from error

    def _compile(self, vocabulary: _Vocabulary, method: str, text: str) -> Any:
        try:
            return getattr(vocabulary.cached, method)(text)
        except RuntimeError as error:
            if _RULE_CACHE_FAULT not in str(error):
                raise
            return getattr(vocabulary.uncached, method)(text)

    def _vocabulary(self, marker_prefix: bytes) -> _Vocabulary:
        with self._lock:
            if marker_prefix not in self._vocabularies:
                self._vocabularies[marker_prefix] = _Vocabulary(self._domain, self._cache_bytes, marker_prefix)
            return self._vocabularies[marker_prefix]


class _Vocabulary:
    """xgrammar's index of the vocabulary and the compilers over it."""

    def __init__(self, domain: TokenDomain, cache_bytes: int, marker_prefix: bytes) -> None:
        import xgrammar

        prefixes = {TokenClass.TEXT: b"", TokenClass.CONTROL: marker_prefix}
        pieces = [
            prefixes[kind] + domain.token_bytes(token) if (kind := domain.token_class(token)) in prefixes else b""
            for token in range(domain.vocab_size)
        ]
        index = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.RAW, vocab_size=domain.vocab_size, stop_token_ids=[])
        self.cached = xgrammar.GrammarCompiler(index, max_threads=1, cache_limit_bytes=cache_bytes)
        self.uncached = xgrammar.GrammarCompiler(index, max_threads=1, cache_enabled=False)


class _Compiled:
    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.memory_bytes: int = compiled.memory_size_bytes

    def matcher(self) -> Matcher:
        import xgrammar

        return _Matcher(xgrammar.GrammarMatcher(self._compiled))


class _Matcher:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fill(self, row: Bitset) -> None:
        self._matcher.fill_next_token_bitmask(row)

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def accept_bytes(self, prefix: bytes) -> int:
        for offset in range(len(prefix)):
            if not self._matcher.accept_string(prefix[offset : offset + 1]):
                return offset
        return len(prefix)

    def rollback(self, steps: int) -> None:
        self._matcher.rollback(steps)

    def can_end(self) -> bool:
        return bool(self._matcher.is_completed())


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
