"""llguidance: an Earley parser over lazily built terminals, which may be intersections and complements."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import reference_depth
from infernix_plugin.grammar.emit_lark import emit_lark
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher
from infernix_plugin.matching.engines.meter import Allowance, Meter

_SPECIAL = b"\xff"
"""llguidance's mark of a token that matches by its id only. No UTF-8 text contains the byte."""

_NO_BYTE = "NoExtension"
"""Begins the error of a position that not even a single byte can continue."""

_MAX_REFERENCE_DEPTH = 1000
"""Longest chain of rules. llguidance follows chains by native recursion and overflows the stack, which ends the
process, somewhere above 2,500 rules on a stack of 8 MiB; an object has a rule for each optional member."""

_MAX_ROW_ITEMS = 1 << 14
"""Parser items of one position; an object has one for each member that may come next. llguidance's default is 2,000."""

_BYTES_PER_GRAMMAR = 100_000
_BYTES_PER_CHARACTER = 36
"""Size of a compiled grammar, and of it per character of its text, after some use: what processes grew by for grammars
of 100 to 45,000 characters, within a third; but lists of texts take two thirds of it."""


_INITIAL_LEXER_FUEL = 1_000_000
"""What making the terminals may cost, llguidance's default; or one for each character, so that what it takes with a
list of texts, which is less, is never refused."""

_LEXER_STEP_FUEL = 8_000_000
"""What one mask may spend on new states of terminals; about 50 ms. Intersected patterns need more than the default."""

_TEXT = r'[^"\\\x00-\x1F\x7F]'
_SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_TEXT}{{1,{most}}}" for most in (5, 10, 15, 20, 30)), f"{_TEXT}+"]
"""Sets of tokens that a mask takes as a whole where a terminal allows any text of theirs. llguidance's own sets have no
lengths between 10 and 30: a mask 20 characters before the end of a bounded string takes 0.23 ms with them, 0.04 ms with
these. More sets take longer to index, which a start of the engine waits for."""


class LlguidanceEngine:
    """Compiles grammars with llguidance, on the calling thread."""

    def __init__(self, domain: TokenDomain, allowance: Allowance, *, spelled: bool = False) -> None:
        """Bind to a vocabulary, which is indexed on first use.

        Args:
            domain: the vocabulary.
            allowance: what the masks of each request may take.
            spelled: whether control tokens also match by their spelling.
        """
        self._domain = domain
        self._spelled = spelled
        self._allowance = allowance
        self._lock = threading.Lock()
        self._vocabulary: Any = None

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile a grammar whose characters are all inside literals and lexemes.

        Raises:
            ValueError: some are not.
            ConstraintTooLarge: past a limit of llguidance.
        """
        return self.made(self.text(grammar))

    def made(self, text: str) -> EngineGrammar:
        """What runs the grammar that :meth:`text` wrote. Native work of up to 2 s, which cannot be interrupted.

        Raises:
            ConstraintTooLarge: past a limit of llguidance.
        """
        return _Compiled(self._index(), text, self._domain, self._allowance)

    def text(self, grammar: Grammar) -> str:
        """A grammar in llguidance's notation.

        Raises:
            ValueError: characters stand outside of literals and lexemes.
            ConstraintTooLarge: past a limit of llguidance.
        """
        if (
            len(grammar.rules) > _MAX_REFERENCE_DEPTH
            and (depth := reference_depth(grammar.rules)) > _MAX_REFERENCE_DEPTH
        ):
            raise ConstraintTooLarge(
                f"the constraint is a chain of {depth} parts; the longest chain is {_MAX_REFERENCE_DEPTH}",
                hint="objects with fewer optional members, or arrays with fewer listed positions, make shorter chains",
            )
        return emit_lark(grammar)

    def _index(self) -> Any:
        with budget.uncharged(), self._lock:
            if self._vocabulary is None:
                from llguidance import LLTokenizer

                pieces = _Pieces(self._domain, self._spelled)
                self._vocabulary = LLTokenizer(pieces, eos_token=pieces.eos_token_id, slices=_SLICES)
            return self._vocabulary


class _Pieces:
    """The vocabulary as llguidance wants it, with 257 ids behind it: every single byte, and an end.

    With the single bytes a position without tokens is still one that llguidance can continue, so a dead end of the
    vocabulary is not an error to it; and raw bytes can be accepted.
    """

    is_tokenizer_wrapper = True  # what llguidance looks for
    bos_token_id: int | None = None

    def __init__(self, domain: TokenDomain, spelled: bool) -> None:
        self.tokens = [_piece(domain, token, spelled) for token in range(domain.vocab_size)]
        self.tokens += [b"" if byte == _SPECIAL[0] else bytes([byte]) for byte in range(256)]
        self.tokens.append(_SPECIAL + b"end")
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: Any) -> Sequence[int]:
        raise RuntimeError("llguidance asked for a tokenisation, which only forcing needs")


def _piece(domain: TokenDomain, token: int, spelled: bool) -> bytes:
    piece = domain.token_bytes(token)
    match domain.token_class(token):
        case TokenClass.CONTROL if not spelled:
            return _SPECIAL + piece
        case TokenClass.TEXT | TokenClass.CONTROL:
            return _SPECIAL + piece if piece.startswith(_SPECIAL) else piece
        case _:
            return b""


class _Compiled:
    engine = "llguidance"

    def __init__(self, vocabulary: Any, text: str, domain: TokenDomain, allowance: Allowance) -> None:
        self.allowance = allowance
        self.memory_bytes = _BYTES_PER_GRAMMAR + len(text) * _BYTES_PER_CHARACTER
        self.words = (vocabulary.vocab_size + 31) // 32
        self.first_byte_token = domain.vocab_size
        self._vocabulary = vocabulary
        self._text = text
        self._lock = threading.Lock()
        self.start = self._parsed()

    def text(self) -> str:
        return self._text

    def matcher(self) -> Matcher:
        return _Matcher(self)

    def renew(self, spent: Any) -> None:
        """Replace ``spent``: the copies of a start share one lexer, and after an error in it none of them can go on."""
        with self._lock:
            if self.start is spent:
                self.start = self._parsed()

    def _parsed(self) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            verbose_errors=False,
            initial_lexer_fuel=max(_INITIAL_LEXER_FUEL, len(self._text)),
            step_lexer_fuel=_LEXER_STEP_FUEL,
            max_items_in_row=_MAX_ROW_ITEMS,
        )
        start = LLMatcher(self._vocabulary, LLMatcher.grammar_from_lark(self._text), log_level=0, limits=limits)
        if start.is_error():
            raise _too_large(start.get_error())
        return start


class _Matcher:
    def __init__(self, grammar: _Compiled, other: _Matcher | None = None) -> None:
        """Start at the beginning, or where ``other`` is, whose scratch space it then uses too."""
        self._grammar = grammar
        self._start: Any = other._start if other else grammar.start
        self._matcher: Any = (other._matcher if other else self._start).deep_copy()
        self._scratch: NDArray[np.int32] = other._scratch if other else np.zeros(grammar.words, dtype=np.int32)
        self._address = self._scratch.__array_interface__["data"][0]
        self._history: list[int] = list(other._history) if other else []
        self._meter: Meter = other._meter if other else Meter(grammar.allowance)

    def fill(self, row: Bitset) -> Bitset:
        self._keep_up()
        started = self._meter.start()
        self._matcher.unsafe_compute_mask_ptr(self._address, self._scratch.nbytes)
        self._meter.stop(started)
        if self._matcher.is_error():
            error = self._recover()
            if not error.startswith(_NO_BYTE):
                raise _too_large(error)
            self._scratch.fill(0)
        return self._scratch[: row.size]

    def accept(self, token: int) -> bool:
        self._keep_up()
        if self._matcher.try_consume_tokens([token]):
            self._history.append(token)
            return True
        if self._matcher.is_error():
            if not (error := self._recover()).startswith(_NO_BYTE):
                raise _too_large(error)
        elif self._is_spent(token):
            self._grammar.renew(self._start)
            self._replay()
            if not self._matcher.try_consume_tokens([token]):
                raise _too_large(f"token {token} is legal, but too much for it")
            self._history.append(token)
            return True
        return False

    def accept_bytes(self, prefix: bytes) -> int:
        for offset, byte in enumerate(prefix):
            if not self.accept(self._grammar.first_byte_token + byte):
                return offset
        return len(prefix)

    def fork(self) -> Matcher:
        self._keep_up()
        return _Matcher(self._grammar, self)

    def rollback(self, steps: int) -> None:
        # llguidance 1.7's own rollback is not exact: after one more token the mask may be that of the undone branch.
        del self._history[len(self._history) - steps :]
        self._replay()

    def forced(self) -> bytes:
        self._keep_up()
        probe = self._matcher.deep_copy()  # llguidance goes on to where the forced text ends, and masks differ there
        text: bytes = probe.compute_ff_bytes()
        if probe.is_error():
            error = str(probe.get_error())
            if error.startswith(_NO_BYTE):
                return b""
            self._grammar.renew(self._start)
            raise _too_large(error)
        return text.split(_SPECIAL, 1)[0]

    def can_end(self) -> bool:
        return bool(self._matcher.is_accepting())

    def _is_spent(self, token: int) -> bool:
        """Whether a refused token is legal: then the shared lexer ran out of states, which llguidance does not say."""
        self._matcher.unsafe_compute_mask_ptr(self._address, self._scratch.nbytes)
        return self._matcher.is_error() or bool(int(self._scratch[token >> 5]) >> (token & 31) & 1)

    def _recover(self) -> str:
        """Leave the error state, which llguidance never does by itself; returns the error."""
        error = str(self._matcher.get_error())
        if not error.startswith(_NO_BYTE):
            self._grammar.renew(self._start)
        self._replay()
        return error

    def _keep_up(self) -> None:
        if self._start is not self._grammar.start:
            self._replay()

    def _replay(self) -> None:
        self._start = self._grammar.start
        self._matcher = self._start.deep_copy()
        if self._matcher.try_consume_tokens(self._history) != len(self._history):
            # Half repeated is of no use to this one but to fail again; the others get a lexer that is not used up.
            spent, self._start = self._start, None
            self._grammar.renew(spent)
            raise _too_large(f"{len(self._history)} tokens cannot be repeated; the output is too long for it")


def _too_large(error: str) -> ConstraintTooLarge:
    reason = next(iter(error.splitlines()), "no reason given")
    return ConstraintTooLarge(f"the constraint is over a limit of its engine: {reason[:200]}")
