"""JSON strings with canonical escapes.

A character has exactly one spelling: the two-character escapes where JSON has one, ``\\u00xx`` in lower case for
the other control characters, itself otherwise (also ``/`` and everything outside ASCII). So comparing spellings is
comparing strings, and one repetition of :data:`CHARACTER` is one decoded character.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from json import JSONEncoder

from infernix_plugin.grammar.analysis import SharedFold
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    Alt,
    And,
    CharSet,
    Lexeme,
    Literal,
    Node,
    Not,
    Repeat,
    Seq,
    Words,
    alt,
    chars,
    charset,
    complement,
    repeat,
    seq,
    words,
)
from infernix_plugin.grammar.json_schema.shape import Strings

_encode = JSONEncoder(ensure_ascii=False).encode
_QUOTE = Literal('"')
_SHORT = '"\\\b\f\n\r\t'
_CONTROL = [code for code in range(0x20) if chr(code) not in _SHORT]
_ESCAPED = [*map(chr, range(0x20)), '"', "\\"]
_PLAIN = complement(charset([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)]))

CHARACTER = alt(
    _PLAIN,
    seq(
        Literal("\\"),
        alt(
            chars('"\\bfnrt'),
            seq(
                Literal("u00"),
                alt(
                    seq(Literal("0"), chars("".join(f"{code:x}" for code in _CONTROL if code < 16))),
                    seq(Literal("1"), chars("0123456789abcdef")),
                ),
            ),
        ),
    ),
)
"""One character of a string."""


_CHARACTERS = repeat(CHARACTER)
_ANY = seq(_QUOTE, _CHARACTERS, _QUOTE)
"""One node wherever strings of any length stand, so that what is known of it stays known."""


def spelling(text: str) -> str:
    """``text`` as a JSON string with its quotes."""
    return _encode(text)


def string(minimum: int = 0, maximum: int | None = None) -> Node:
    """Strings by their number of decoded characters."""
    return Lexeme(seq(_QUOTE, repeat(CHARACTER, minimum, maximum), _QUOTE))


def intersection(languages: Sequence[Node]) -> Node:
    """Strings that, decoded, are in every one of the languages."""
    if not languages:
        return string()
    quoted = [_quoted(item) for item in languages if not isinstance(item, Not)]
    excluded = [Not(_quoted(item.item)) for item in languages if isinstance(item, Not)]
    parts = (*(quoted or [_ANY]), *excluded)
    return Lexeme(parts[0] if len(parts) == 1 else And(parts))


def matching(strings: Strings, minimum: int, maximum: int | None) -> Node:
    """Strings by their number of decoded characters and the patterns they contain."""
    quoted = [_quoted(pattern.node) for pattern in strings.patterns]
    if (minimum, maximum) != (0, None) or not quoted:
        quoted.insert(0, seq(_QUOTE, repeat(CHARACTER, minimum, maximum), _QUOTE))
    return Lexeme(quoted[0] if len(quoted) == 1 else And(tuple(quoted)))


def language(strings: Strings) -> Node:
    """The values, without quotes and escapes."""
    parts: list[Node] = [pattern.node for pattern in strings.patterns]
    if (strings.minimum, strings.maximum) != (0, None) or not parts:
        parts.append(repeat(ANY_CHAR, strings.minimum, strings.maximum))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


class _Spelling:
    """A language of spellings, and the same between quotes; either is one node wherever the language stands, so that
    what is known of it stays known."""

    __slots__ = ("_quoted", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._quoted: Node | None = None

    def quoted(self) -> Node:
        if self._quoted is None:
            self._quoted = seq(_QUOTE, self.node, _QUOTE)
        return self._quoted


def _quoted(language: Node) -> Node:
    """The spellings, quotes included, of a regular language of strings."""
    return _spellings(language).quoted()


def _spell(node: Node, below: list[_Spelling]) -> _Spelling:
    """Every character has one spelling and no spelling begins another, so this goes character by character."""
    parts = [part.node for part in below]
    match node:
        case Literal(text):
            return _Spelling(Literal(spelling(text)[1:-1]))
        case Words(texts):
            return _Spelling(words(spelling(text)[1:-1] for text in texts))
        case CharSet(ranges):
            return _Spelling(_spelled_set(ranges))
        case Seq():
            return _Spelling(seq(*parts))
        case Alt():
            return _Spelling(alt(*parts))
        case Repeat(_, minimum, maximum):
            return _Spelling(repeat(parts[0], minimum, maximum))
        case And():
            return _Spelling(And(tuple(parts)))
        case Not():
            return _Spelling(And((_CHARACTERS, Not(parts[0]))))
        case _:
            raise TypeError(f"{node!r} is not an expression over characters")


@lru_cache(maxsize=256)
def _spelled_set(ranges: tuple[tuple[int, int], ...]) -> Node:
    if ranges == ANY_CHAR.ranges:
        return CHARACTER
    plain: list[tuple[int, int]] = []
    escaped: list[str] = []
    for low, high in ranges:
        for start, end in _PLAIN.ranges:
            plain.append((max(low, start), min(high, end)))
        escaped.extend(char for char in _ESCAPED if low <= ord(char) <= high)
    return alt(charset(plain), *(Literal(spelling(char)[1:-1]) for char in escaped))


_spellings = SharedFold(_spell)
