"""The short proof, which is enough for JSON: no word follows a word, and no run of blanks another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce
from operator import or_

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import SharedFold, components, references
from infernix_plugin.grammar.emit_lark import literal_pieces
from infernix_plugin.grammar.ir import Alt, Lexeme, Literal, Node, Ref, Repeat, Seq, Words
from infernix_plugin.matching.engines.lexing.json_tokens import Cut, ends_of, piece_symbol

_FIRST, _LAST, _EMPTY = 0, 8, 16
"""In what number of bits the kinds begin that a text may begin with, and end with, and where it says that none is
needed: all of a node in one integer, as this is asked about every node of every schema."""
_FACE = 0xFF
_NO_TOKEN = 1 << _EMPTY
_GROWING = (1 << Cut.WORD) | (1 << Cut.BLANK)


class _NotOnlyTokensError(Exception):
    """Something is no JSON token, or a word can follow a word, or blanks can follow blanks."""


def only_json_tokens(rules: Mapping[str, Node]) -> bool:
    """Whether all terminals are JSON tokens and neither a word can follow a word nor a run of blanks another.

    If so, no more needs to be known; if not, longest-match lexing may be exact for another reason.
    """
    return _faces(rules) is not None


def kinds_around(rules: Mapping[str, Node], name: str) -> tuple[int, int] | None:
    """The kinds of tokens that the texts of a rule begin with, and those that they end with, as sets of bits.

    ``None`` if not all terminals are JSON tokens, or one of the texts is empty.
    """
    faces = _faces(rules)
    if faces is None or faces[name] & _NO_TOKEN:
        return None
    return faces[name] >> _FIRST & _FACE, faces[name] >> _LAST & _FACE


def _faces(rules: Mapping[str, Node]) -> dict[str, int] | None:
    faces = dict.fromkeys(rules, 0)
    uses = {name: references(body) for name, body in rules.items()}
    try:
        for group in components(uses):
            recursive = len(group) > 1 or group[0] in uses[group[0]]
            changed = True
            while changed:
                budget.checkpoint()
                before = [faces[name] for name in group]
                for name in group:
                    faces[name] = _face(rules[name], faces)
                changed = recursive and before != [faces[name] for name in group]
    except (_NotOnlyTokensError, RecursionError):
        return None
    return faces


def _face(node: Node, faces: Mapping[str, int]) -> int:
    """The kinds of tokens that the texts of a node begin with and end with."""
    match node:
        case Ref(name):
            return faces[name]
        case Literal(text):
            return _literal_face(text)
        case Words(texts):
            return reduce(or_, map(_literal_face, texts))
        case Lexeme():
            return _lexeme_faces(node)
        case Seq(items):
            found = _NO_TOKEN
            for item in budget.watched(items):
                found = _joined(found, _face(item, faces))
            return found
        case Alt(options):
            found = 0
            for option in budget.watched(options):
                found |= _face(option, faces)
            return found
        case Repeat(item, minimum, maximum):
            found = _face(item, faces)
            if maximum is None or maximum > 1:
                _joined(found, found)
            return found if minimum else found | _NO_TOKEN
    raise _NotOnlyTokensError


def _joined(before: int, after: int) -> int:
    """The face of one text behind another."""
    if (before >> _LAST) & after & _GROWING:
        raise _NotOnlyTokensError
    first = before & _FACE | (after & _FACE if before & _NO_TOKEN else 0)
    last = after & _FACE << _LAST | (before & _FACE << _LAST if after & _NO_TOKEN else 0)
    return first | last | before & after & _NO_TOKEN


@lru_cache(maxsize=1 << 12)
def _literal_face(text: str) -> int:
    return reduce(_joined, (_one_token(1 << piece_symbol(piece).kind) for piece in literal_pieces(text)), _NO_TOKEN)


def _lexeme_face(node: Node, below: list[int]) -> int:
    """Called with the lexeme alone, which is the leaf of its own fold."""
    assert isinstance(node, Lexeme)
    ends = ends_of(node.item)
    kinds = ends & ~(1 << Cut.START)
    return _one_token(kinds) | (_NO_TOKEN if ends != kinds else 0)


def _one_token(kinds: int) -> int:
    if kinds >> Cut.NEITHER & 1 or kinds & (1 << Cut.IN_STRING | 1 << Cut.ESCAPED):
        raise _NotOnlyTokensError
    return kinds << _FIRST | kinds << _LAST


_lexeme_faces = SharedFold(_lexeme_face, Lexeme)
