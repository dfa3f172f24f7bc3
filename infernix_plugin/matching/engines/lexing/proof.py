"""The long proof: no two terminals that are allowed together may be taken for each other."""

from __future__ import annotations

from itertools import combinations

from infernix_plugin.grammar.ir import TokenSet
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.lexing.joints import Joints
from infernix_plugin.matching.engines.lexing.json_tokens import Cut


def joints_ambiguity(joints: Joints, domain: TokenDomain, *, spelled: bool = False) -> str | None:
    """Why longest-match lexing may not be exact for a grammar, or ``None`` if it is.

    Args:
        joints: of the grammar.
        domain: the vocabulary.
        spelled: whether control tokens also match by their spelling.
    """
    for allowed in joints.allowed_together():
        texts = allowed & ~joints.token_sets
        if texts & joints.others and texts & (texts - 1) and not joints.are_told_apart(texts):
            return "text that is not one JSON token may stand where other text may stand"
        sets = list(joints.token_sets_in(allowed))
        if texts and any(spelled or _names_text(tokens, domain) for tokens in sets):
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
