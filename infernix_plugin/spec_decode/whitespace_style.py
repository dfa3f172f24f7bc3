"""Which whitespace comes next, if an output goes on as it began: compact, with spaces, or indented by depth.

Only a guess: whoever uses it has to be right without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WHITESPACE = frozenset(b" \t\n\r")
_QUOTE, _BACKSLASH = b'"\\'

_MEMORY = 0.9
"""What one more gap leaves of the weight of those before it."""
_LEAST_RIGHT = 0.25
"""Share of right guesses below which they are not worth a draft."""


class _Gap(Enum):
    """The places of JSON where writers differ. All other places are told apart by the byte before them."""

    OPEN = "behind an opening bracket"
    CLOSE = "before a closing bracket"
    COMMA = "behind a comma"
    COLON = "behind a colon"


@dataclass(frozen=True, slots=True)
class _Fill:
    """What stands in a gap: ``head`` up to the last line break, then ``unit`` once for each level of depth."""

    head: bytes
    unit: bytes

    @classmethod
    def of(cls, written: bytes, depth: int) -> _Fill:
        head = written[: written.rfind(b"\n") + 1]
        indent = written[len(head) :]
        if head and depth > 0 and not len(indent) % depth:
            return cls(head, indent[: len(indent) // depth])
        return cls(written, b"")

    def at(self, depth: int) -> bytes:
        return self.head + self.unit * depth


_NONE = _Fill(b"", b"")
_SPACE = _Fill(b" ", b"")


class WhitespaceStyle:
    """Reads an output byte by byte and remembers how each kind of gap was filled the last time.

    Attributes:
        in_string: whether the output ends between two double quotes.
    """

    def __init__(self) -> None:
        self._fills: dict[_Gap | int, _Fill] = {}
        self._depth = 0
        self._last: int | None = None
        self._written = b""
        self._right = self._guessed = 1 / (1 - _MEMORY)
        self.in_string = False
        self._escaped = False

    def observe(self, text: bytes) -> None:
        """Read on; ``text`` may end anywhere."""
        for byte in text:
            if self.in_string:
                self.in_string = self._escaped or byte != _QUOTE
                self._escaped = byte == _BACKSLASH and not self._escaped
            elif byte in WHITESPACE:
                self._written += bytes([byte])
                continue
            else:
                self._learn(byte)
                self.in_string = byte == _QUOTE
            self._last, self._written = byte, b""

    def copy(self) -> WhitespaceStyle:
        """An independent copy, to read on beyond the output."""
        other = WhitespaceStyle.__new__(WhitespaceStyle)
        other.__dict__.update(self.__dict__, _fills=dict(self._fills))
        return other

    @property
    def keeps(self) -> bool:
        """Whether the output keeps to its style well enough for guesses."""
        return self._right >= _LEAST_RIGHT * self._guessed

    def rest(self, following: int) -> bytes:
        """What whitespace is still to be written before the byte ``following``."""
        if self._last is None or self.in_string:
            return b""
        usual = self._guess(following).at(self._depth_at(following))
        return usual[len(self._written) :] if usual.startswith(self._written) else b""

    def _learn(self, following: int) -> None:
        if self._last is not None and not (
            self._last in b"{[" and following in b"}]"
        ):  # how empty ones look is no sign
            depth, gap = self._depth_at(following), self._gap(following)
            if isinstance(gap, _Gap):
                self._right = _MEMORY * self._right + (self._guess(following).at(depth) == self._written)
                self._guessed = _MEMORY * self._guessed + 1
            self._fills[gap] = _Fill.of(self._written, depth)
        self._depth += (following in b"{[") - (following in b"}]")

    def _guess(self, following: int) -> _Fill:
        if self._empty(following):
            return _NONE
        gap = self._gap(following)
        known = self._fills.get(gap)
        if known is not None:
            return known
        if gap is _Gap.OPEN and b"\n" in self._written:
            return _Fill(self._written[: self._written.rfind(b"\n") + 1], b"  ")
        opened = self._fills.get(_Gap.OPEN, _NONE)
        if opened.head.endswith(b"\n") and gap in (_Gap.CLOSE, _Gap.COMMA):
            return opened
        if gap is _Gap.COMMA:
            return self._fills.get(_Gap.COLON, _SPACE)
        return _SPACE if gap is _Gap.COLON else _NONE

    def _empty(self, following: int) -> bool:
        return self._last is not None and self._last in b"{[" and following in b"}]"

    def _gap(self, following: int) -> _Gap | int:
        assert self._last is not None
        if following in b"}]":
            return _Gap.CLOSE
        if self._last in b"{[":
            return _Gap.OPEN
        return {ord(","): _Gap.COMMA, ord(":"): _Gap.COLON}.get(self._last, self._last)

    def _depth_at(self, following: int) -> int:
        return self._depth - (following in b"}]")
