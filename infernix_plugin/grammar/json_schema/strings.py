"""JSON strings with canonical escapes.

A character has exactly one spelling: the two-character escapes where JSON has one, ``\\u00xx`` in lower case for
the other control characters, itself otherwise (also ``/`` and everything outside ASCII). So comparing spellings is
comparing strings, and one repetition of :data:`CHARACTER` is one decoded character.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from json import JSONEncoder

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
from infernix_plugin.grammar.json_schema.shape import Pattern, Strings

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


_ANY = seq(_QUOTE, repeat(CHARACTER), _QUOTE)
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
    excluded = [item.item for item in languages if isinstance(item, Not)]
    quoted = [seq(_QUOTE, spelled(item), _QUOTE) for item in languages if not isinstance(item, Not)]
    if not quoted:
        quoted.append(_ANY)
    if excluded:
        quoted.append(Not(seq(_QUOTE, spelled(alt(*excluded)), _QUOTE)))
    return Lexeme(quoted[0] if len(quoted) == 1 else And(tuple(quoted)))


def matching(strings: Strings, minimum: int, maximum: int | None) -> Node:
    """Strings by their number of decoded characters and the patterns they contain."""
    quoted = [seq(_QUOTE, _spelled_pattern(pattern), _QUOTE) for pattern in strings.patterns]
    if (minimum, maximum) != (0, None) or not quoted:
        quoted.insert(0, seq(_QUOTE, repeat(CHARACTER, minimum, maximum), _QUOTE))
    return Lexeme(quoted[0] if len(quoted) == 1 else And(tuple(quoted)))


@lru_cache(maxsize=256)
def _spelled_pattern(pattern: Pattern) -> Node:
    return spelled(pattern.node)


def language(strings: Strings) -> Node:
    """The values, without quotes and escapes."""
    parts: list[Node] = [pattern.node for pattern in strings.patterns]
    if (strings.minimum, strings.maximum) != (0, None) or not parts:
        parts.append(repeat(ANY_CHAR, strings.minimum, strings.maximum))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def spelled(node: Node) -> Node:
    """A regular language of strings, as the language of their spellings between the quotes.

    Every character has one spelling and no spelling begins another, so this goes character by character.
    """
    match node:
        case Literal(text):
            return Literal(spelling(text)[1:-1])
        case Words(texts):
            return words(spelling(text)[1:-1] for text in texts)
        case CharSet(ranges):
            return _spelled_set(ranges)
        case Seq(items):
            return seq(*map(spelled, items))
        case Alt(options):
            return alt(*map(spelled, options))
        case Repeat(item, minimum, maximum):
            return repeat(spelled(item), minimum, maximum)
        case And(items):
            return And(tuple(map(spelled, items)))
        case Not(item):
            return And((repeat(CHARACTER), Not(spelled(item))))
        case _:
            raise TypeError(f"{node!r} is not an expression over characters")


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
