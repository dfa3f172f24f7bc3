"""JSON text spaced as ``json.dumps`` and the chat templates do: ``", "`` and ``": "``, no other whitespace."""

from __future__ import annotations

from infernix_plugin.grammar.ir import EPSILON, Grammar, Literal, Node
from infernix_plugin.grammar.json_schema.values import COLON, COMMA, SPACE

_SPACED: dict[str, Node] = {COMMA.name: Literal(", "), COLON.name: Literal(": "), SPACE.name: EPSILON}


def spaced(grammar: Grammar) -> Grammar:
    """The same values in this one spacing, for a grammar of this package's JSON values."""
    return Grammar({name: _SPACED.get(name, body) for name, body in grammar.rules.items()}, grammar.root)
