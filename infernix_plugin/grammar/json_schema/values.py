"""The rules that all JSON grammars share: any value, and the lexemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import EPSILON, Lexeme, Literal, Node, Ref, alt, chars, optional, repeat, seq, words
from infernix_plugin.grammar.json_schema import numbers
from infernix_plugin.grammar.json_schema.json_value import Json, Number
from infernix_plugin.grammar.json_schema.strings import spelling, string
from infernix_plugin.grammar.options import GrammarOptions

VALUE, OBJECT, ARRAY = Ref("value"), Ref("object"), Ref("array")
STRING, NUMBER, INTEGER = Ref("string"), Ref("number"), Ref("integer")
SPACE = Ref("space")
TRUE, FALSE, NULL = Literal("true"), Literal("false"), Literal("null")
COLON, COMMA = Ref("colon"), Ref("comma")
"""Rules, so that an engine follows one separator, not one for each of the members that may come next."""


@lru_cache(maxsize=16)
def shared_rules(options: GrammarOptions) -> Mapping[str, Node]:
    """The rule bodies behind the references of this module."""
    space = repeat(chars(" \t\n\r"), 0, options.max_whitespace)
    return {
        "value": alt(OBJECT, ARRAY, STRING, NUMBER, TRUE, FALSE, NULL),
        "object": braced("{", repeated(seq(STRING, COLON, VALUE)), "}"),
        "array": braced("[", repeated(VALUE), "]"),
        "string": string(),
        "number": Lexeme(numbers.any_number(options.max_number_digits)),
        "integer": Lexeme(numbers.any_integer()),
        "colon": seq(SPACE, Literal(":"), SPACE),
        "comma": seq(SPACE, Literal(","), SPACE),
        "space": EPSILON if space == EPSILON else Lexeme(space),
    }


def repeated(item: Node) -> Node:
    """One or more items with commas between."""
    return seq(item, repeat(seq(COMMA, item)))


def braced(opening: str, content: Node, closing: str, *, may_be_empty: bool = True) -> Node:
    """Content between brackets, with one run of whitespace where there is none."""
    inside = seq(content, SPACE)
    return seq(Literal(opening), SPACE, optional(inside) if may_be_empty else inside, Literal(closing))


def one_of(listed: Sequence[Json]) -> Node:
    """One of the values; many strings are one terminal."""
    texts = [spelling(value) for value in budget.watched(listed) if isinstance(value, str)]
    if len(texts) < 2:
        return alt(*map(literal, budget.watched(listed)))
    return alt(Lexeme(words(texts)), *(literal(value) for value in listed if not isinstance(value, str)))


def literal(value: Json) -> Node:
    """One JSON value: members in source order, numbers as written, whitespace between tokens."""
    match value:
        case None:
            return NULL
        case bool():
            return TRUE if value else FALSE
        case Number():
            return Literal(value.text)
        case str():
            return Literal(spelling(value))
        case list():
            opening, parts, closing = "[", [literal(item) for item in budget.watched(value)], "]"
        case _:
            opening, closing = "{", "}"
            parts = [seq(Literal(spelling(name)), COLON, literal(item)) for name, item in budget.watched(value.items())]
    if not parts:
        return seq(Literal(opening), SPACE, Literal(closing))
    separated = [node for part in parts for node in (COMMA, part)][1:]
    return seq(Literal(opening), SPACE, *separated, SPACE, Literal(closing))
