"""Rewrite a grammar, without changing its language, into the shapes that xgrammar runs fast.

For the xgrammar path only: :class:`~infernix_plugin.grammar.ir.Lexeme` marks are dropped. An engine that wants them
takes the grammar as the front end made it.
"""

from __future__ import annotations

from infernix_plugin.grammar.analysis import productive, reachable
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.pool import Pool


def normalize(grammar: Grammar) -> Grammar:
    """An equivalent grammar in fast shapes. Every reference of ``grammar`` must be defined."""
    pool = Pool()
    alive = productive(grammar)
    useless = {name: pool.never for name in grammar.rules if name not in alive}
    rules = {name: pool.substitute(pool.adopt(body), useless) for name, body in grammar.rules.items()}
    result = Grammar(rules, grammar.root)
    needed = reachable(result)
    return Grammar({name: body for name, body in rules.items() if name in needed}, grammar.root)
