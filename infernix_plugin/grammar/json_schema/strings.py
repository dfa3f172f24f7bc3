"""JSON strings with canonical escapes.

A character has exactly one spelling: the two-character escapes where JSON has one, ``\\u00xx`` in lower case for
the other control characters, itself otherwise (also ``/`` and everything outside ASCII). So comparing spellings is
comparing strings, and one repetition of :data:`CHARACTER` is one decoded character.
"""

from __future__ import annotations

import json

from infernix_plugin.grammar.ir import And, Lexeme, Literal, Node, Not, alt, chars, charset, complement, repeat, seq

_QUOTE = Literal('"')
_SHORT = '"\\\b\f\n\r\t'
_CONTROL = [code for code in range(0x20) if chr(code) not in _SHORT]
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


def spelling(text: str) -> str:
    """``text`` as a JSON string with its quotes."""
    return json.dumps(text, ensure_ascii=False)


def string(minimum: int = 0, maximum: int | None = None) -> Node:
    """Strings by their number of decoded characters."""
    return Lexeme(seq(_QUOTE, repeat(CHARACTER, minimum, maximum), _QUOTE))


def string_except(names: tuple[str, ...]) -> Node:
    """Every string that is none of ``names``."""
    if not names:
        return string()
    anything = seq(_QUOTE, repeat(CHARACTER), _QUOTE)
    return Lexeme(And((anything, Not(alt(*(Literal(spelling(name)) for name in names))))))
