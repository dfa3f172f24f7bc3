"""JSON text spaced as ``json.dumps`` and the chat templates do: ``", "`` and ``": "``, no other whitespace."""

from __future__ import annotations

from infernix_plugin.grammar.analysis import fold
from infernix_plugin.grammar.ir import EPSILON, Alt, Grammar, Lexeme, Literal, Node, Repeat, Seq, alt, repeat, seq
from infernix_plugin.grammar.json_schema.values import COLON, COMMA, SPACE

_SPACED = {COMMA: Literal(", "), COLON: Literal(": ")}


def spaced(grammar: Grammar) -> Grammar:
    """The same values in this one spacing, for a grammar of this package's JSON values."""
    return Grammar({name: fold(body, _respaced, Lexeme) for name, body in grammar.rules.items()}, grammar.root)


def _respaced(node: Node, below: list[Node]) -> Node:
    match node:
        case Seq():
            return seq(*_joined(below))
        case Alt():
            return alt(*below)
        case Repeat(_, minimum, maximum):
            return repeat(below[0], minimum, maximum)
        case _:
            return node


def _joined(items: list[Node]) -> list[Node]:
    """The items of a sequence with every separator in its one spelling and no other whitespace."""
    found: list[Node] = []
    index = 0
    while index < len(items):
        separator = _SPACED.get(Seq(tuple(items[index : index + 3])))
        if separator is not None:
            found.append(separator)
        elif items[index] != SPACE:
            found.append(items[index])
        index += 1 if separator is None else 3
    return found or [EPSILON]
