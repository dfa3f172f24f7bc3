"""Token terminals: which ones content may hold, and a form that xgrammar gets right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.grammar.analysis import fold, leaves
from infernix_plugin.grammar.ir import Grammar, Node, TokenSet, alt, rebuilt
from infernix_plugin.matching.domain import TokenClass, TokenDomain

PlaceOf = Callable[[int], str | None]
"""Where the source names a token id, asked only for the error."""


def _nowhere(token: int) -> str | None:
    return None


def restrict_terminals(grammar: Grammar, domain: TokenDomain, place_of: PlaceOf = _nowhere) -> Grammar:
    """Check the token ids of a content grammar, and keep its negated token sets away from control tokens.

    Framing is applied afterwards: only it may name control tokens.

    Raises:
        InvalidGrammar: a terminal names an id outside the vocabulary, or one that is not a text token.
    """
    used = [node for body in grammar.rules.values() for node in leaves(body) if isinstance(node, TokenSet)]
    if not used:
        return grammar
    for node in used:
        for token in node.ids:
            _check(token, domain, place_of)
    control = tuple(domain.ids_of_class(TokenClass.CONTROL))
    return _map_token_sets(
        grammar,
        lambda node: TokenSet(tuple(sorted({*node.ids, *control})), exclude=True) if node.exclude else node,
    )


def _check(token: int, domain: TokenDomain, place_of: PlaceOf) -> None:
    if not 0 <= token < domain.vocab_size:
        raise InvalidGrammar(
            f"token id {token} is outside the vocabulary of {domain.vocab_size} ids", location=place_of(token)
        )
    kind = domain.token_class(token)
    if kind is not TokenClass.TEXT:
        raise InvalidGrammar(
            f"token id {token} is a {kind.name.lower()} token, which content cannot hold",
            location=place_of(token),
            hint="Use the ids of ordinary text tokens.",
        )


def with_equal_exclusions(grammar: Grammar) -> Grammar:
    """The same language with one common set of excluded ids in all negated token sets.

    xgrammar 0.2.8 takes the ids excluded by one alternative out of every other alternative of the same state.
    """
    exclusions = {
        frozenset(node.ids)
        for body in grammar.rules.values()
        for node in leaves(body)
        if isinstance(node, TokenSet) and node.exclude
    }
    if len(exclusions) < 2:
        return grammar
    common = frozenset().union(*exclusions)

    def equal(node: TokenSet) -> Node:
        if not node.exclude:
            return node
        readmitted = tuple(sorted(common - set(node.ids)))
        negated = TokenSet(tuple(sorted(common)), exclude=True)
        return alt(negated, TokenSet(readmitted)) if readmitted else negated

    return _map_token_sets(grammar, equal)


def _map_token_sets(grammar: Grammar, replacement: Callable[[TokenSet], Node]) -> Grammar:
    def replaced(node: Node, below: list[Node]) -> Node:
        return replacement(node) if isinstance(node, TokenSet) else rebuilt(node, below)

    return replace(grammar, rules={name: fold(body, replaced) for name, body in grammar.rules.items()})
