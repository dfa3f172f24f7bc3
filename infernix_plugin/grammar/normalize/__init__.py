"""Rewrite a grammar, without changing its language, into the shapes that xgrammar runs fast.

For the xgrammar path only: :class:`~infernix_plugin.grammar.ir.Lexeme` marks are dropped. An engine that wants them
takes the grammar as the front end made it.

What is slow is a short rule inside a loop, since most tokens run past its end and have to be tried one by one for
every mask (see :mod:`infernix_plugin.grammar.emit`). So the steps aim at loops that live inside one rule:

0. :mod:`~infernix_plugin.grammar.normalize.intersections` works out small intersections and complements;
1. :mod:`~infernix_plugin.grammar.normalize.draft` simplifies and drops useless rules;
2. :mod:`~infernix_plugin.grammar.normalize.recursion` turns left and right recursion into repetition;
3. :mod:`~infernix_plugin.grammar.normalize.inline` puts small rules, and rules inside loops, in their place;
4. :mod:`~infernix_plugin.grammar.normalize.loops` writes the loops that no regular expression can hold as
   right-recursive rules.
"""

from __future__ import annotations

from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.normalize.draft import Draft
from infernix_plugin.grammar.normalize.inline import inline_rules
from infernix_plugin.grammar.normalize.intersections import lower_intersections
from infernix_plugin.grammar.normalize.loops import lower_loops
from infernix_plugin.grammar.normalize.recursion import remove_recursion

__all__ = ["normalize"]


def normalize(grammar: Grammar) -> Grammar:
    """An equivalent grammar in fast shapes.

    Every reference of ``grammar`` must be defined. :class:`~infernix_plugin.grammar.ir.And` and
    :class:`~infernix_plugin.grammar.ir.Not` with large automata stay, which the emitter then refuses. The empty
    language comes back as an entry rule without options.
    """
    draft = Draft(lower_intersections(grammar))
    for step in (remove_recursion, inline_rules, lower_loops):
        step(draft)
        draft.tidy()
    return draft.grammar()
