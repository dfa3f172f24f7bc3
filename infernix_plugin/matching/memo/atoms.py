"""What a position of a grammar waits for, one byte at a time.

An atom stands for the texts that may come next and where they end. Atoms of equal texts need not be the same object,
but the same object always stands for the same texts, so positions that hold the same atoms are the same position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from infernix_plugin.grammar.ir import CharSet, Literal, Words


class Atom(Protocol):
    """A set of byte strings. Immutable; compared by identity."""

    @property
    def accepting(self) -> bool:
        """Whether the empty string is in the set."""

    @property
    def open(self) -> bool:
        """Whether anything but the empty string can be in the set."""

    def after(self, byte: int) -> Atom | None:
        """What remains of the strings that begin with ``byte``; ``None`` if there surely are none."""


class _Done:
    """Nothing more to read."""

    __slots__ = ()
    accepting = True
    open = False

    def after(self, byte: int) -> Atom | None:
        return None


DONE: Atom = _Done()


class _Leaf(ABC):
    """Strings that are all longer than nothing."""

    __slots__ = ()
    accepting = False
    open = True

    @abstractmethod
    def after(self, byte: int) -> Atom | None:
        """What may follow ``byte`` at the start of one of them."""


class _Text(_Leaf):
    """The rest of a literal, from ``offset`` on."""

    __slots__ = ("_data", "_following", "_offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self._offset = offset
        self._following: Atom | None = None

    def after(self, byte: int) -> Atom | None:
        if self._data[self._offset] != byte:
            return None
        if self._following is None:
            offset = self._offset + 1
            self._following = DONE if offset == len(self._data) else _Text(self._data, offset)
        return self._following


@lru_cache(maxsize=1 << 12)
def text(node: Literal) -> Atom:
    """The atom of a literal that is not empty."""
    return _Text(node.text.encode())


class _Word:
    """The rest of one of the sorted ``data`` from index ``first`` to ``last``, which agree up to ``offset``."""

    __slots__ = ("_data", "_first", "_following", "_last", "_offset", "accepting")
    open = True

    def __init__(self, data: Sequence[bytes], first: int, last: int, offset: int = 0) -> None:
        self._data = data
        self._first = first
        self._last = last
        self._offset = offset
        self._following: dict[int, Atom | None] = {}
        self.accepting = len(data[first]) == offset

    def after(self, byte: int) -> Atom | None:
        if byte not in self._following:
            self._following[byte] = self._after(byte)
        return self._following[byte]

    def _after(self, byte: int) -> Atom | None:
        place = slice(self._offset, self._offset + 1)

        def following(data: bytes) -> bytes:
            return data[place]

        piece = bytes((byte,))
        first = bisect_left(self._data, piece, self._first, self._last, key=following)
        last = bisect_right(self._data, piece, first, self._last, key=following)
        if first == last:
            return None
        if last - first > 1:
            return _Word(self._data, first, last, self._offset + 1)
        only = self._data[first]
        return DONE if len(only) == self._offset + 1 else _Text(only, self._offset + 1)


def word(node: Words) -> Atom:
    """The atom of a list of texts."""
    data = [text.encode() for text in node.texts]
    return _Word(data, 0, len(data))


class _Continuation(_Leaf):
    """The last ``count`` bytes of any character whose beginning leaves all of them free."""

    __slots__ = ("_count",)

    def __init__(self, count: int) -> None:
        self._count = count

    def after(self, byte: int) -> Atom | None:
        return _CONTINUATIONS[self._count - 1] if 0x80 <= byte < 0xC0 else None


_CONTINUATIONS: tuple[Atom, ...] = (DONE, _Continuation(1), _Continuation(2), _Continuation(3))
_SMALLEST = (0, 0x80, 0x800, 0x10000)
"""The smallest character by the number of bytes that follow its first one."""


class _Character(_Leaf):
    """One character of a set, in UTF-8."""

    __slots__ = ("_ascii", "_lows", "_ranges", "_started")

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self._ranges = ranges
        self._lows = [low for low, _ in ranges]
        self._ascii = sum(1 << char for char in range(0x80) if self._covers(char, char))
        self._started: dict[tuple[int, int, int], Atom | None] = {}

    def after(self, byte: int) -> Atom | None:
        if byte < 0x80:
            return DONE if self._ascii >> byte & 1 else None
        if 0xC2 <= byte < 0xE0:
            return self.started(byte & 0x1F, 1, 1)
        if 0xE0 <= byte < 0xF0:
            return self.started(byte & 0x0F, 2, 2)
        if 0xF0 <= byte < 0xF5:
            return self.started(byte & 0x07, 3, 3)
        return None

    def started(self, value: int, missing: int, length: int) -> Atom | None:
        """What completes a character of which ``missing`` of ``length`` continuation bytes are to come."""
        key = (value, missing, length)
        if key not in self._started:
            low, high = value << 6 * missing, ((value + 1) << 6 * missing) - 1
            self._started[key] = self._completion(low, high, missing, length)
        return self._started[key]

    def _completion(self, low: int, high: int, missing: int, length: int) -> Atom | None:
        if low >= _SMALLEST[length] and self._covers(low, high):
            return _CONTINUATIONS[missing]
        place = bisect_right(self._lows, high)
        if not place or min(high, self._ranges[place - 1][1]) < max(low, _SMALLEST[length]):
            return None
        return _Started(self, low >> 6 * missing, missing, length)

    def _covers(self, low: int, high: int) -> bool:
        place = bisect_right(self._lows, low)
        return bool(place) and self._ranges[place - 1][1] >= high


class _Started(_Leaf):
    """A character of a set, some of whose bytes were read."""

    __slots__ = ("_length", "_missing", "_of", "_value")

    def __init__(self, of: _Character, value: int, missing: int, length: int) -> None:
        self._of = of
        self._value = value
        self._missing = missing
        self._length = length

    def after(self, byte: int) -> Atom | None:
        if not 0x80 <= byte < 0xC0:
            return None
        return self._of.started(self._value << 6 | byte & 0x3F, self._missing - 1, self._length)


@lru_cache(maxsize=1 << 12)
def character(node: CharSet) -> Atom:
    """The atom of a set of characters."""
    return _Character(node.ranges)
