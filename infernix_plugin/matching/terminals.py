"""Token terminals of a user's grammar: only ordinary text tokens may be content."""

from __future__ import annotations

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.grammar.ir import Alt, And, Grammar, Lexeme, Node, Not, Repeat, Seq, TokenSet, walk
from infernix_plugin.matching.domain import TokenClass, TokenDomain


def restrict_terminals(grammar: Grammar, domain: TokenDomain) -> Grammar:
    """Check the token ids of a content grammar, and keep its negated token sets away from control tokens.

    Framing is applied afterwards: only it may name control tokens.

    Raises:
        InvalidGrammar: a terminal names an id outside the vocabulary, or one that is not a text token.
    """
    used = [node for body in grammar.rules.values() for node in walk(body) if isinstance(node, TokenSet)]
    if not used:
        return grammar
    for node in used:
        for token in node.ids:
            _check(token, domain)
    control = tuple(domain.ids_of_class(TokenClass.CONTROL))
    return Grammar({name: _exclude(body, control) for name, body in grammar.rules.items()}, grammar.root)


def _check(token: int, domain: TokenDomain) -> None:
    if not 0 <= token < domain.vocab_size:
        raise InvalidGrammar(f"token id {token} is outside the vocabulary of {domain.vocab_size} ids")
    kind = domain.token_class(token)
    if kind is not TokenClass.TEXT:
        raise InvalidGrammar(
            f"token id {token} is a {kind.name.lower()} token, which content cannot hold",
            hint="Use the ids of ordinary text tokens.",
        )


def _exclude(node: Node, control: tuple[int, ...]) -> Node:
    match node:
        case TokenSet(ids, True):
            return TokenSet(tuple(sorted({*ids, *control})), exclude=True)
        case Seq(items):
            return Seq(tuple(_exclude(item, control) for item in items))
        case Alt(options):
            return Alt(tuple(_exclude(option, control) for option in options))
        case And(items):
            return And(tuple(_exclude(item, control) for item in items))
        case Repeat(item, minimum, maximum):
            return Repeat(_exclude(item, control), minimum, maximum)
        case Not(item):
            return Not(_exclude(item, control))
        case Lexeme(item):
            return Lexeme(_exclude(item, control))
        case _:
            return node
