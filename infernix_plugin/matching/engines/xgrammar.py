"""xgrammar: an Earley matcher with masks precomputed per grammar rule. Runs grammars without And and Not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.emit import emit
from infernix_plugin.grammar.ir import Grammar, TokenSet, walk
from infernix_plugin.grammar.normalize import normalize
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher
from infernix_plugin.matching.engines.meter import Allowance, Meter
from infernix_plugin.matching.engines.rehearsal import Rehearsal, check_size, letters
from infernix_plugin.matching.terminals import with_equal_exclusions

_UNMATCHABLE = b"\xff"
"""A byte that no UTF-8 text contains: put before a control token's spelling, the token matches by its id only."""

_RULE_CACHE_FAULT = "per_rule_fsm_hashes"
"""Part of the message with which xgrammar 0.2.8's cache of compiled rules fails on some valid grammars.

A worse fault of that cache gives no message: rules that differ in nothing but the ids of their token terminals are
taken for the same rule, within a grammar and between grammars. So whatever names tokens is compiled without it.
"""

_MAX_CACHED_LETTERS = 1 << 13
"""Largest grammar that goes through that cache: what it does to know a rule again grows with the square of the rule. A
choice of 60 KB is compiled in 0.6 s with it and in 0.3 s without."""


class XgrammarEngine:
    """Compiles grammars with xgrammar, on the calling thread."""

    def __init__(self, domain: TokenDomain, *, cache_bytes: int, allowance: Allowance) -> None:
        """Bind to a vocabulary.

        Args:
            domain: the vocabulary.
            cache_bytes: bounds xgrammar's cache of rules shared between grammars.
            allowance: what the masks of each request may take.
        """
        self._allowance = allowance
        self._domain = domain
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self._vocabularies: dict[bytes, _Vocabulary] = {}

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile a grammar that has neither And nor Not.

        Raises:
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
            ValueError: it has.
        """
        normal = normalize(with_equal_exclusions(grammar))
        names_tokens = any(isinstance(part, TokenSet) for body in normal.rules.values() for part in walk(body))
        vocabulary = self._vocabulary(_UNMATCHABLE)
        check_size(normal)
        text = emit(normal)
        budget.checkpoint()
        vocabulary.rehearsal.check(lambda compiler: compiler.compile_grammar(text))
        cache = not names_tokens and letters(normal) <= _MAX_CACHED_LETTERS
        return self._built(vocabulary, lambda compiler: compiler.compile_grammar(text), cache=cache)

    def compile_structural_tag(self, text: str) -> EngineGrammar:
        """Compile the JSON text of an xgrammar structural tag, in which control tokens also match by their spelling.

        Raises:
            InvalidGrammar: xgrammar refuses it.
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
        """
        vocabulary = self._vocabulary(b"")
        may_name_tokens = "token" in text

        def run(compiler: Any) -> Any:
            return compiler.compile_structural_tag(text)

        with suppress(RuntimeError, ValueError):  # it may name tokens that a small vocabulary has not
            vocabulary.rehearsal.check(run)
        try:
            return self._built(vocabulary, run, cache=not may_name_tokens)
        except (RuntimeError, ValueError) as error:
            raise InvalidGrammar(f"the structural tag is not valid: {_last_line(error)}") from error

    def _vocabulary(self, marker_prefix: bytes) -> _Vocabulary:
        with budget.uncharged(), self._lock:
            if marker_prefix not in self._vocabularies:
                self._vocabularies[marker_prefix] = _Vocabulary(self._domain, self._cache_bytes, marker_prefix)
            return self._vocabularies[marker_prefix]

    def _built(self, vocabulary: _Vocabulary, run: Callable[[Any], Any], *, cache: bool) -> _Compiled:
        if cache:
            try:
                return _Compiled(run(vocabulary.cached), self._allowance, vocabulary.generable)
            except RuntimeError as error:
                if _RULE_CACHE_FAULT not in str(error):
                    raise
        return _Compiled(run(vocabulary.uncached), self._allowance, vocabulary.generable)


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
        self.rehearsal = Rehearsal(domain, pieces)
        self.generable = domain.generable_bits
        self.uncached = xgrammar.GrammarCompiler(index, max_threads=1, cache_enabled=False)


class _Compiled:
    engine = "xgrammar"

    def __init__(self, compiled: Any, allowance: Allowance, generable: Bitset) -> None:
        self._compiled = compiled
        self._allowance = allowance
        self._generable = generable
        self.memory_bytes: int = compiled.memory_size_bytes

    def text(self) -> str:
        return str(self._compiled.grammar)

    def matcher(self) -> Matcher:
        import xgrammar

        return _Matcher(xgrammar.GrammarMatcher(self._compiled), Meter(self._allowance), self._generable)


class _Matcher:
    def __init__(self, matcher: Any, meter: Meter, generable: Bitset) -> None:
        self._matcher = matcher
        self._meter = meter
        self._generable = generable

    def fill(self, row: Bitset) -> Bitset:
        started = self._meter.start()
        self._matcher.fill_next_token_bitmask(row)
        self._meter.stop(started)
        return np.bitwise_and(row, self._generable, row)

    def accept(self, token: int) -> bool:
        self._meter.check()
        started = self._meter.start()
        accepted = bool(self._matcher.accept_token(token))
        self._meter.pay(started)
        return accepted

    def accept_bytes(self, prefix: bytes) -> int:
        for offset in range(len(prefix)):
            self._meter.check()
            started = self._meter.start()
            accepted = self._matcher.accept_string(prefix[offset : offset + 1])
            self._meter.pay(started)
            if not accepted:
                return offset
        return len(prefix)

    def fork(self) -> Matcher:
        return _Matcher(self._matcher.fork(), self._meter, self._generable)

    def rollback(self, steps: int) -> None:
        self._matcher.rollback(steps)

    def forced(self) -> bytes:
        try:
            return str(self._matcher.find_jump_forward_string()).encode()
        except UnicodeDecodeError:  # it begins or ends inside a character
            return b""

    def can_end(self) -> bool:
        return bool(self._matcher.is_completed())


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
