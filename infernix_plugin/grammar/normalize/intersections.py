"""Replace small intersections and complements by what they amount to."""

from __future__ import annotations

from infernix_plugin.grammar.analysis import has_intersections
from infernix_plugin.grammar.ir import And, Grammar, Node, Not
from infernix_plugin.grammar.plain import expression
from infernix_plugin.grammar.pool import Pool

MAX_STATES = 256
MAX_POSITIONS = 512
"""Largest expression that may stand for an intersection or a complement."""


def lower_intersections(grammar: Grammar) -> Grammar:
    """An equivalent grammar in which small :class:`And` and :class:`Not` nodes are gone; large ones stay."""
    if not has_intersections(grammar):
        return grammar
    pool = Pool()

    def replace(node: Node) -> Node | None:
        if not isinstance(node, And | Not) or not pool.facts(node).regular:
            return None
        return expression(pool, node, states=MAX_STATES, positions=MAX_POSITIONS)

    return Grammar({name: pool.rebuild(body, replace) for name, body in grammar.rules.items()}, grammar.root)
