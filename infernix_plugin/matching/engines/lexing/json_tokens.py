"""Which kinds of JSON tokens the texts of a terminal are, and the terminals that are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache, reduce
from operator import and_, or_
from typing import NamedTuple

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import SharedFold
from infernix_plugin.grammar.emit_lark import is_piece, literal_pieces, terminal
from infernix_plugin.grammar.ir import (
    Alt,
    And,
    CharSet,
    Lexeme,
    Literal,
    Node,
    Not,
    Repeat,
    Seq,
    TokenSet,
    Words,
    chars,
    charset,
    complement,
)


class Cut(IntEnum):
    """Where a reader of one JSON token stands."""

    START = 0
    IN_STRING = 1
    ESCAPED = 2
    STRING = 3
    WORD = 4
    BLANK = 5
    PUNCTUATION = 6
    NEITHER = 7


QUOTE, _BACKSLASH = charset([(34, 34)]), charset([(92, 92)])
BLANK_LETTERS = charset([(9, 13), (32, 32)])
WORD_LETTERS = charset([(43, 43), (45, 46), (48, 57), (65, 90), (95, 95), (97, 122)])
_REST = complement(charset([*QUOTE.ranges, *_BACKSLASH.ranges, *BLANK_LETTERS.ranges, *WORD_LETTERS.ranges]))
_STEPS: tuple[tuple[CharSet, tuple[Cut, ...]], ...] = tuple(
    (letters, (start, in_string, Cut.IN_STRING, Cut.NEITHER, word, blank, Cut.NEITHER, Cut.NEITHER))
    for letters, start, in_string, word, blank in (
        (QUOTE, Cut.IN_STRING, Cut.STRING, Cut.NEITHER, Cut.NEITHER),
        (_BACKSLASH, Cut.PUNCTUATION, Cut.ESCAPED, Cut.NEITHER, Cut.NEITHER),
        (BLANK_LETTERS, Cut.BLANK, Cut.IN_STRING, Cut.NEITHER, Cut.BLANK),
        (WORD_LETTERS, Cut.WORD, Cut.IN_STRING, Cut.WORD, Cut.NEITHER),
        (_REST, Cut.PUNCTUATION, Cut.IN_STRING, Cut.NEITHER, Cut.NEITHER),
    )
)

_Reach = tuple[int, ...]
"""For each state before a text, the states that may be after it, as a set of bits."""

_UNCHANGED: _Reach = tuple(1 << cut for cut in Cut)
_ANYWHERE: _Reach = ((1 << len(Cut)) - 1,) * len(Cut)
_NOWHERE: _Reach = (0,) * len(Cut)
_TOKENS = (Cut.STRING, Cut.WORD, Cut.BLANK, Cut.PUNCTUATION)


class Symbol(NamedTuple):
    """A class of terminals that are treated alike."""

    kind: Cut
    """The kind of JSON token, or NEITHER."""
    mark: TokenSet | str | None = None
    """The token set; a literal word, run of blanks or mark; or the terminal that is no JSON token. Else ``None``."""


def bits(numbers: int) -> Iterator[int]:
    """The members of a set of small numbers that is written as the bits of one."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


@lru_cache(maxsize=1 << 12)
def literal_symbols(text: str) -> tuple[Symbol, ...]:
    """The symbols of the terminals that a text outside of a terminal is cut into."""
    return tuple(map(piece_symbol, literal_pieces(text)))


def piece_symbol(piece: str) -> Symbol:
    """The kind of a piece of a literal, which is a JSON token unless it is a quote without an end."""
    if piece[0] == '"':
        return Symbol(Cut.STRING) if len(piece) > 1 else Symbol(Cut.NEITHER, terminal(Literal(piece)))
    if ord(piece[0]) in WORD_LETTERS:
        return Symbol(Cut.WORD, piece)
    return Symbol(Cut.BLANK if ord(piece[0]) in BLANK_LETTERS else Cut.PUNCTUATION, piece)


def ends_of(item: Node) -> int:
    """Where a reader may stand after a text of ``item``."""
    if not isinstance(item, Words):
        return _reaches(item)[Cut.START]
    return reduce(or_, (1 << kind for kind in {_kind(text) for text in budget.watched(item.texts)}))


def _kind(text: str) -> Cut:
    """The kind of JSON token that a text is, START for none, or NEITHER."""
    if not text:
        return Cut.START
    return piece_symbol(text).kind if is_piece(text) else Cut.NEITHER


def symbols_of(item: Node) -> list[Symbol]:
    """The kinds of JSON tokens among the members of ``item``, or ``item`` itself if it has other members."""
    ends = ends_of(item) & ~(1 << Cut.START)
    kinds = [kind for kind in _TOKENS if ends >> kind & 1]
    if ends != sum(1 << kind for kind in kinds):
        return [Symbol(Cut.NEITHER, terminal(item))]
    return [Symbol(kind, item.text if isinstance(item, Literal) and kind is not Cut.STRING else None) for kind in kinds]


def _reach(node: Node, below: list[_Reach]) -> _Reach:
    match node:
        case Literal(text):
            return _text_reach(text)
        case Words(texts):
            return _either(map(_text_reach, texts))
        case CharSet():
            return _character_reach(node)
        case Seq():
            return _chain(below)
        case Alt():
            return _either(below)
        case And():
            return tuple(reduce(and_, (reach[cut] for reach in below)) for cut in Cut)
        case Repeat(_, minimum, maximum):
            return _several(below[0], minimum, len(Cut) if maximum is None else min(maximum, len(Cut)))
        case Lexeme():
            return below[0]
    return _ANYWHERE  # a complement: nothing is known about its members


@lru_cache(maxsize=1 << 12)
def _several(once: _Reach, minimum: int, rounds: int) -> _Reach:
    """Any number of repetitions: as many rounds as there are states find every end."""
    result = once if minimum else _UNCHANGED
    for _ in range(rounds):
        longer = tuple(a | b for a, b in zip(result, _chain([result, once]), strict=True))
        if longer == result:
            break
        result = longer
    return result


def _text_reach(text: str) -> _Reach:
    return _chain(map(_letter_reach, text))


def _either(reaches: Iterable[_Reach]) -> _Reach:
    return tuple(reduce(or_, column, 0) for column in zip(*set(reaches), strict=True)) or _NOWHERE


@lru_cache(maxsize=1 << 12)
def _letter_reach(letter: str) -> _Reach:
    return _character_reach(chars(letter))


@lru_cache(maxsize=1 << 12)
def _character_reach(letters: CharSet) -> _Reach:
    steps = [after for kind, after in _STEPS if _overlap(kind, letters)]
    return tuple(reduce(or_, (1 << after[cut] for after in steps), 0) for cut in Cut)


def _chain(reaches: Iterable[_Reach]) -> _Reach:
    return reduce(_after, reaches, _UNCHANGED)


@lru_cache(maxsize=1 << 12)
def _after(before: _Reach, reach: _Reach) -> _Reach:
    """One text after another."""
    return tuple(reduce(or_, (reach[cut] for cut in bits(ends)), 0) for ends in before)


def _overlap(left: CharSet, right: CharSet) -> bool:
    return any(low <= high2 and low2 <= high for low, high in left.ranges for low2, high2 in right.ranges)


_reaches = SharedFold(_reach, Not)
