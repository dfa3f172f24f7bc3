"""When may a longest-match lexer cut the output?

llguidance reads a terminal as long as *any* terminal that is allowed at that point can go on, and forgets the shorter
matches. That is exact if no terminal that is allowed together with a matched one continues it with a character that
may follow the match. JSON terminals have a reason for that, which this module checks on the grammar itself:

- no string, cut at its closing quote, is the beginning of a longer string; a punctuation mark is one character;
- a word (name, number, literal) is never followed by a word, a run of blanks never by blanks.

What stands behind a single token or a text of its own, and nowhere else, is looked at apart: tool calls, for example.

Every other terminal must keep the promise of :class:`~infernix_plugin.grammar.ir.Lexeme` and be the only one where it
is allowed, or one of several of which it is proven that no text of one is a text of another or its beginning. A
grammar for which this cannot be shown is not run by llguidance.
"""

from __future__ import annotations

from itertools import combinations

from infernix_plugin.grammar.ir import Grammar, Lexeme, TokenSet
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.lexing.joints import Joints
from infernix_plugin.matching.engines.lexing.json_tokens import Cut
from infernix_plugin.matching.engines.lexing.token_kinds import only_json_tokens

__all__ = ["ambiguity"]


def ambiguity(grammar: Grammar, domain: TokenDomain) -> str | None:
    """Why longest-match lexing may not be exact for ``grammar``, or ``None`` if it is. Every rule counts."""
    if isinstance(grammar.start, Lexeme):
        return None  # one terminal, and nothing stands beside it or after it
    return None if only_json_tokens(grammar.rules) else _ambiguity_of_others(grammar, domain)


def _ambiguity_of_others(grammar: Grammar, domain: TokenDomain) -> str | None:
    joints = Joints(grammar)
    for allowed in joints.allowed_together():
        texts = allowed & ~joints.token_sets
        if texts & joints.others and texts & (texts - 1) and not joints.are_told_apart(texts):
            return "text that is not one JSON token may stand where other text may stand"
        sets = list(joints.token_sets_in(allowed))
        if texts and any(_names_text(tokens, domain) for tokens in sets):
            return "text may stand where a single text token is named"
        if any(_share_a_token(left, right) for left, right in combinations(sets, 2)):
            return "one token may be named in two ways"
        if joints.can_grow(texts, Cut.WORD):
            return "a word may be followed by text that continues it"
        if joints.can_grow(texts, Cut.BLANK):
            return "a run of blanks may be followed by text that continues it"
    return None


def _names_text(tokens: TokenSet, domain: TokenDomain) -> bool:
    return tokens.exclude or any(domain.token_class(token) is TokenClass.TEXT for token in tokens.ids)


def _share_a_token(left: TokenSet, right: TokenSet) -> bool:
    if left.exclude and right.exclude:
        return True
    if left.exclude:
        left, right = right, left
    return bool(set(left.ids) - set(right.ids) if right.exclude else set(left.ids) & set(right.ids))
