"""When may a longest-match lexer cut an output whose grammar is a frame around JSON values?

A JSON text that is no number is never the beginning of another one. So where the frame goes on behind a value, nothing
of the value can go on; and where a value may begin, a first character that begins nothing of the frame decides that
the output is in a value. There every terminal is a JSON token, which needs no more. What is left to be shown is said of
the frame alone, with a plain value where it has a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from infernix_plugin.grammar.ir import (
    Grammar,
    Lexeme,
    Literal,
    Node,
    alt,
    charset,
    complement,
    repeat,
    seq,
)
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.lexing.joints import Joints
from infernix_plugin.matching.engines.lexing.json_tokens import QUOTE, WORD_LETTERS, Cut
from infernix_plugin.matching.engines.lexing.proof import joints_ambiguity
from infernix_plugin.matching.engines.lexing.token_kinds import kinds_around

_PLAIN_VALUES: tuple[tuple[Cut, Node], ...] = (
    (Cut.STRING, Lexeme(seq(Literal('"'), repeat(complement(charset([*QUOTE.ranges, (0x5C, 0x5C)]))), Literal('"')))),
    (Cut.WORD, Lexeme(repeat(WORD_LETTERS, 1))),
    (Cut.PUNCTUATION, alt(seq(Literal("{"), Literal("}")), seq(Literal("["), Literal("]")))),
)
"""For each kind of JSON token, values that begin and end with it."""


def plain_value(rules: Mapping[str, Node], root: str) -> Node | None:
    """JSON values that begin and end with the same kinds of tokens as those of a schema's grammar.

    ``None`` if that is not known to have JSON texts, without blanks around them, and JSON tokens only.
    """
    around = kinds_around(rules, root)
    if around is None:
        return None
    first, last = around
    kinds = [kind for kind, _ in _PLAIN_VALUES if first >> kind & 1]
    if first != last or first != sum(1 << kind for kind in kinds):
        return None
    return alt(*(value for kind, value in _PLAIN_VALUES if kind in kinds))


def frame_ambiguity(frame: Grammar, values: Mapping[str, Node], domain: TokenDomain) -> str | None:
    """Why longest-match lexing may not be exact for a frame around values, or ``None`` if it is.

    Args:
        frame: names a rule for each value and does not have it.
        values: the names of those rules, and a plain value for each.
        domain: the vocabulary; control tokens also match by their spelling.
    """
    joints = Joints(Grammar({**frame.rules, **values}, frame.root), frozenset(values))
    if any(map(joints.may_be_in_a_value, joints.allowed_together())):
        return "text may stand where a value may begin alike"
    return joints_ambiguity(joints, domain, spelled=True)
