"""The companion of tool calls with free argument names: no call names an argument twice.

A grammar cannot say that names are distinct. The companion follows the lines of the calls that the engine accepts, and
takes out of the masks the tokens that would complete a name which the call has used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

import numpy as np

from infernix_plugin.framing.tools import markup
from infernix_plugin.matching.companions.vocabulary import clear
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher

FUNCTION_OPEN = markup.FUNCTION_OPEN.encode()
FUNCTION_END = markup.FUNCTION_END.encode()
PARAMETER_OPEN = markup.PARAMETER_OPEN.encode()
NAME_CLOSE, NAME_END = markup.NAME_END[:1].encode(), markup.NAME_END.encode()
VALUE_END, LINE_END = markup.VALUE_END.encode(), markup.LINE_END.encode()


class _Part(Enum):
    REASONING = auto()
    ELSEWHERE = auto()
    HEADING = auto()
    LINE = auto()
    """At the beginning of a line between arguments."""
    NAME = auto()
    VALUE = auto()


class _Place(NamedTuple):
    """Where the output stands: in a part, behind so much text of it that still matters."""

    part: _Part
    text: bytes = b""
    used: frozenset[bytes] = frozenset()


_ELSEWHERE = _Place(_Part.ELSEWHERE)


@dataclass(frozen=True, slots=True)
class DistinctNames:
    """For which functions names are told apart, and which tokens matter.

    Attributes:
        functions: their names.
        opening: the token that begins a call.
        closing_reasoning: the token that ends the reasoning in which the output begins, ``None`` without reasoning.
    """

    functions: frozenset[str]
    opening: int
    closing_reasoning: int | None = None

    def start(self) -> _Place:
        """The place where an output begins."""
        return _ELSEWHERE if self.closing_reasoning is None else _Place(_Part.REASONING)

    def after_token(self, place: _Place, token: int, written: bytes) -> _Place | None:
        """The place behind a token, ``None`` if it repeats a name."""
        if place.part is _Part.REASONING:
            return _ELSEWHERE if token == self.closing_reasoning else place
        if place.part is _Part.ELSEWHERE:
            return _Place(_Part.HEADING) if token == self.opening else place
        return self.after(place, written)

    def after(self, place: _Place, written: bytes) -> _Place | None:
        """The place behind text inside a call, ``None`` if it repeats a name. What no call holds leads elsewhere."""
        part, text, used = place
        if part in (_Part.REASONING, _Part.ELSEWHERE):
            return place
        text += written
        while True:
            match part:
                case _Part.HEADING:
                    end = text.find(NAME_END)
                    if end < 0:
                        return _Place(part, text)
                    name, text = text[len(FUNCTION_OPEN) : end], text[end + len(NAME_END) :]
                    if name.decode(errors="replace") not in self.functions:
                        return _ELSEWHERE
                    part = _Part.LINE
                case _Part.LINE:
                    if not text.startswith(PARAMETER_OPEN):
                        begun = PARAMETER_OPEN.startswith(text) or (
                            FUNCTION_END.startswith(text) and text != FUNCTION_END
                        )
                        return _Place(part, text, used) if begun else _ELSEWHERE
                    part, text = _Part.NAME, text[len(PARAMETER_OPEN) :]
                case _Part.NAME:
                    end = text.find(NAME_CLOSE)
                    if end < 0 or len(text) < end + len(NAME_END):
                        return None if text[:-1] in used and end >= 0 else _Place(part, text, used)
                    if text[:end] in used:
                        return None
                    used |= {text[:end]}
                    part, text = _Part.VALUE, text[end + len(NAME_END) :]
                case _:
                    end = text.find(VALUE_END)
                    behind = end + len(VALUE_END + LINE_END)
                    if end < 0 or len(text) < behind:
                        return _Place(part, text[end:] if end >= 0 else _begun(text, VALUE_END), used)
                    part, text = _Part.LINE, text[behind:]

    @staticmethod
    def repetitions(place: _Place) -> Iterator[bytes]:
        """What a token would have to begin with to repeat a name that was used before it."""
        part, text, used = place
        match part:
            case _Part.NAME:
                if NAME_CLOSE not in text:
                    yield from (name[len(text) :] + NAME_CLOSE for name in used if name.startswith(text))
            case _Part.LINE:
                if PARAMETER_OPEN.startswith(text):
                    yield from (PARAMETER_OPEN[len(text) :] + name + NAME_CLOSE for name in used)
            case _Part.VALUE:
                lead = (VALUE_END + LINE_END)[len(text) :] + PARAMETER_OPEN
                yield from (lead + name + NAME_CLOSE for name in used)


def _begun(text: bytes, end: bytes) -> bytes:
    """The longest end of ``text`` that is a beginning of ``end``."""
    for length in range(min(len(text), len(end) - 1), 0, -1):
        if end.startswith(text[-length:]):
            return text[-length:]
    return b""


class WrittenTokens:
    """The text tokens of a vocabulary by what they write, indexed on first use. Safe to share."""

    def __init__(self, domain: TokenDomain) -> None:
        """Bind to a vocabulary."""
        self.domain = domain

    def beginning_with(self, text: bytes) -> list[int]:
        """The tokens that write ``text`` and perhaps more."""
        pieces, ids = self._sorted
        start = bisect_left(pieces, text)
        end = start
        while end < len(pieces) and pieces[end].startswith(text):
            end += 1
        return ids[start:end]

    @cached_property
    def crossing(self) -> list[int]:
        """The tokens that hold the end of one argument and the beginning of the next."""
        pieces, ids = self._sorted
        between = VALUE_END + LINE_END + PARAMETER_OPEN
        return [token for piece, token in zip(pieces, ids, strict=True) if between in piece]

    @cached_property
    def _sorted(self) -> tuple[list[bytes], list[int]]:
        ids = sorted(self.domain.ids_of_class(TokenClass.TEXT), key=self.domain.token_bytes)
        return [self.domain.token_bytes(token) for token in ids], ids


class DistinctNamesGrammar:
    """A compiled grammar of calls beside its companion."""

    def __init__(self, grammar: EngineGrammar, names: DistinctNames, tokens: WrittenTokens) -> None:
        """Restrict ``grammar``, whose calls have the form of :mod:`infernix_plugin.framing.tools.markup`."""
        self.names = names
        self.tokens = tokens
        self._grammar = grammar
        self.engine: str = grammar.engine
        self.memory_bytes: int = grammar.memory_bytes

    def text(self) -> str:
        """The engine's grammar, without what its companion forbids."""
        return self._grammar.text()

    def matcher(self) -> Matcher:
        """A new matcher at the start of the language."""
        return _Matcher(self, self._grammar.matcher(), self.names.start())


class _Step(NamedTuple):
    """The place before an accepted token."""

    place: _Place
    before: _Step | None


class _Matcher:
    def __init__(self, grammar: DistinctNamesGrammar, matcher: Matcher, place: _Place) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._place = place
        self._steps: _Step | None = None

    def fill(self, row: Bitset) -> Bitset:
        found = self._matcher.fill(row)
        repeating = self._repeating()
        if not repeating:
            return found
        if found is not row:
            np.bitwise_and(found, self._grammar.tokens.domain.generable_bits, row)
        clear(row, np.array(repeating, dtype=np.int64))
        return row

    def accept(self, token: int) -> bool:
        after = self._after(token)
        if after is None or not self._matcher.accept(token):
            return False
        self._steps = _Step(self._place, self._steps)
        self._place = after
        return True

    def accept_bytes(self, prefix: bytes) -> int:
        for offset in range(len(prefix)):
            byte = prefix[offset : offset + 1]
            after = self._grammar.names.after(self._place, byte)
            if after is None or not self._matcher.accept_bytes(byte):
                return offset
            self._place = after
        return len(prefix)

    def fork(self) -> Matcher:
        fork = _Matcher(self._grammar, self._matcher.fork(), self._place)
        fork._steps = self._steps
        return fork

    def rollback(self, steps: int) -> None:
        self._matcher.rollback(steps)
        for _ in range(steps):
            assert self._steps is not None
            self._place, self._steps = self._steps

    def forced(self) -> bytes:
        return self._matcher.forced()

    def can_end(self) -> bool:
        return self._matcher.can_end()

    def _after(self, token: int) -> _Place | None:
        written = self._grammar.tokens.domain.token_bytes(token)
        return self._grammar.names.after_token(self._place, token, written)

    def _repeating(self) -> list[int]:
        tokens = self._grammar.tokens
        found = [
            token for text in self._grammar.names.repetitions(self._place) for token in tokens.beginning_with(text)
        ]
        if self._place.part in (_Part.NAME, _Part.VALUE, _Part.LINE):
            found += [token for token in tokens.crossing if self._after(token) is None]
        return found
