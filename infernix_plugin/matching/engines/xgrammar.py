"""xgrammar: an Earley matcher with masks precomputed per grammar rule. Runs grammars without And and Not."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
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
from infernix_plugin.matching.engines.rehearsal import MASKS, Rehearsal, check_size, letters
from infernix_plugin.matching.terminals import with_equal_exclusions

REFUSED = "The structural tag is not valid"
"""What an error says before the reason that xgrammar gives."""
_SOURCE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""What its errors begin with: when, and in which line of its own source."""
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


_MAX_PACKED_BYTES = 8 << 20
"""Largest compiled grammar that is sent to another process: writing it down takes twelve times its size."""


@dataclass(frozen=True, slots=True)
class Native:
    """What xgrammar has compiled, and over which of its indexes of the vocabulary.

    Attributes:
        compiled: xgrammar's ``CompiledGrammar``.
        text: what it was compiled from.
        spelled: whether that is a structural tag, beside which control tokens also match by their spelling.
        cached: whether xgrammar's cache of rules was used.
    """

    compiled: Any
    text: str
    spelled: bool
    cached: bool

    @property
    def is_large(self) -> bool:
        """Whether to compile it again is better than to send it."""
        return bool(self.compiled.memory_size_bytes > _MAX_PACKED_BYTES)

    def packed(self) -> str:
        """The compiled grammar for another process with the same vocabulary; see :meth:`XgrammarEngine.unpacked`."""
        return str(self.compiled.serialize_json())


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
        self._vocabularies: dict[bool, _Vocabulary] = {}

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile a grammar that has neither And nor Not.

        Raises:
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
            ValueError: it has.
        """
        return self.made(self.native(grammar))

    def made(self, native: Native) -> EngineGrammar:
        """What runs a compiled grammar."""
        return _Compiled(native.compiled, self._allowance, self._domain.generable_bits)

    def unpacked(self, packed: str, text: str, *, spelled: bool, cached: bool) -> Native:
        """What :meth:`Native.packed` packed. Takes a hundredth of the time of a compile."""
        import xgrammar

        index = self._vocabulary(spelled).index
        return Native(xgrammar.CompiledGrammar.deserialize_json(packed, index), text, spelled, cached)

    def again(self, text: str, *, spelled: bool, cached: bool) -> Native:
        """Compile what another process has tried and found to be within all limits."""
        return Native(self._compiled(text, spelled=spelled, cached=cached), text, spelled, cached)

    def native(self, grammar: Grammar) -> Native:
        """Do the work of :meth:`compile`, which cannot be interrupted once xgrammar has begun.

        Raises:
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
            ValueError: the grammar has And or Not.
        """
        normal = normalize(with_equal_exclusions(grammar))
        names_tokens = any(isinstance(part, TokenSet) for body in normal.rules.values() for part in walk(body))
        check_size(normal)
        text = emit(normal)
        budget.checkpoint()
        return self._tried(text, cached=not names_tokens and letters(normal) <= _MAX_CACHED_LETTERS)

    def compile_structural_tag(self, text: str) -> EngineGrammar:
        """Compile the JSON text of an xgrammar structural tag, in which control tokens also match by their spelling.

        Raises:
            InvalidGrammar: xgrammar refuses it.
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
        """
        return self.made(self.native_structural_tag(text))

    def native_structural_tag(self, text: str) -> Native:
        """Do the work of :meth:`compile_structural_tag`.

        Raises:
            InvalidGrammar: xgrammar refuses it.
            ConstraintTooLarge: it would be compiled for too long, or its masks take too long.
        """
        may_name_tokens = "token" in text
        try:
            return self._tried(text, spelled=True, cached=not may_name_tokens)
        except (RuntimeError, ValueError) as error:
            raise InvalidGrammar(f"{REFUSED}: {reason_of(error)}") from error

    def _vocabulary(self, spelled: bool) -> _Vocabulary:
        with budget.uncharged(), self._lock:
            if spelled not in self._vocabularies:
                self._vocabularies[spelled] = _Vocabulary(self._domain, self._cache_bytes, spelled)
            return self._vocabularies[spelled]

    def _tried(self, text: str, *, spelled: bool = False, cached: bool) -> Native:
        """Rehearse, compile, and walk over the whole vocabulary."""
        rehearsal = self._vocabulary(spelled).rehearsal()
        with suppress(RuntimeError, ValueError) if spelled else nullcontext():  # a small vocabulary may lack its tokens
            rehearsal.check(_run(text, spelled=spelled))
        native = self.again(text, spelled=spelled, cached=cached)
        rehearsal.walk(native.compiled, self._allowance.of(MASKS))
        return native

    def _compiled(self, text: str, *, spelled: bool, cached: bool) -> Any:
        vocabulary, run = self._vocabulary(spelled), _run(text, spelled=spelled)
        if cached:
            try:
                return run(vocabulary.cached)
            except RuntimeError as error:
                if _RULE_CACHE_FAULT not in str(error):
                    raise
        return run(vocabulary.uncached)


def _run(text: str, *, spelled: bool) -> Callable[[Any], Any]:
    """What lets a compiler of xgrammar's compile a grammar, or a structural tag."""
    if spelled:
        return lambda compiler: compiler.compile_structural_tag(text)
    return lambda compiler: compiler.compile_grammar(text)


class _Vocabulary:
    """xgrammar's index of the vocabulary, and the compilers over it, which a process that compiles nothing lacks."""

    def __init__(self, domain: TokenDomain, cache_bytes: int, spelled: bool) -> None:
        import xgrammar

        prefixes = {TokenClass.TEXT: b"", TokenClass.CONTROL: b"" if spelled else _UNMATCHABLE}
        self._pieces = [
            prefixes[kind] + domain.token_bytes(token) if (kind := domain.token_class(token)) in prefixes else b""
            for token in range(domain.vocab_size)
        ]
        self._domain = domain
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self._rehearsal: Rehearsal | None = None
        self.index = xgrammar.TokenizerInfo(
            self._pieces, xgrammar.VocabType.RAW, vocab_size=domain.vocab_size, stop_token_ids=[]
        )

    def rehearsal(self) -> Rehearsal:
        """The small vocabularies."""
        with budget.uncharged(), self._lock:
            if self._rehearsal is None:
                self._rehearsal = Rehearsal(self._domain, self._pieces)
            return self._rehearsal

    @cached_property
    def cached(self) -> Any:
        """The compiler that knows rules again."""
        import xgrammar

        return xgrammar.GrammarCompiler(self.index, max_threads=1, cache_limit_bytes=self._cache_bytes)

    @cached_property
    def uncached(self) -> Any:
        """The compiler that does not."""
        import xgrammar

        return xgrammar.GrammarCompiler(self.index, max_threads=1, cache_enabled=False)


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


def reason_of(error: Exception) -> str:
    """Return what an error of xgrammar says, without the time and the line of its own source."""
    lines = str(error).strip().splitlines()
    said = _SOURCE.sub("", lines[-1]).rpartition("Invalid structural tag error: ")[2] if lines else ""
    return said or type(error).__name__
