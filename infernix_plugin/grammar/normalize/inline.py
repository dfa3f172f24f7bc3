"""Put rules in the place of references to them, where that makes a loop or a rule one automaton.

Shared rules stay shared when they can: xgrammar keeps compiled rules across grammars by their shape. So small regular
rules go everywhere, larger ones only into loops and into rules that become regular by it. A *sealed* rule, which loops
over most characters and then comes to a definite end (a quoted string, a line), is good as it is: few tokens run past
its end, and every copy of the loop costs a pass over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Container

from infernix_plugin.grammar.emit import MAX_REGEX_POSITIONS
from infernix_plugin.grammar.ir import Alt, CharSet, Node, Ref, Repeat, Seq, TokenSet, children, walk
from infernix_plugin.grammar.normalize.draft import Draft

MAX_SMALL_POSITIONS = 12
"""Largest rule that is written out wherever it is used."""
MAX_REGULAR_POSITIONS = 128
"""Largest rule that other rules are written out in because that makes it regular."""
MAX_LOOP_POSITIONS = MAX_REGEX_POSITIONS
"""Largest loop that rules are written out in."""
MAX_RULE_POSITIONS = 512
"""Largest a rule may grow to by writing out small ones."""
BROAD_SET = 1024
"""A set of so many characters covers most of a vocabulary."""


def inline_rules(draft: Draft) -> None:
    """Write out small regular rules everywhere, and regular rules inside loops."""
    work = _Inliner(draft)
    for group in draft.order(draft.rules):
        for name in group:
            draft.rules[name] = work.written_out(draft.rules[name])
        if len(group) == 1:
            work.learn(group[0], draft.rules[group[0]])


class _Inliner:
    """The regular rules seen so far, by how freely they may be copied. Bodies hold no references."""

    def __init__(self, draft: Draft) -> None:
        self._pool = draft.pool
        self._regular: dict[str, Node] = {}
        self._open: dict[str, Node] = {}
        self._small: dict[str, Node] = {}

    def learn(self, name: str, body: Node) -> None:
        """Remember a rule, if it is regular and not too large."""
        if not _is_regular(body, self._regular):
            return
        whole = self._pool.substitute(body, self._regular)
        facts = self._pool.facts(whole)
        if not facts.plain or facts.positions > MAX_LOOP_POSITIONS:
            return
        self._regular[name] = whole
        if not self._is_sealed(whole):
            self._open[name] = whole
            if facts.positions <= MAX_SMALL_POSITIONS:
                self._small[name] = whole

    def written_out(self, body: Node) -> Node:
        """``body`` with rules put in."""
        whole = self._pool.substitute(body, self._open)
        if self._pool.facts(whole).regular and self._pool.facts(whole).positions <= MAX_REGULAR_POSITIONS:
            return whole
        grown = self._pool.substitute(body, self._small)
        if self._pool.facts(grown).positions <= max(MAX_RULE_POSITIONS, 2 * self._pool.facts(body).positions):
            body = grown
        return self._pool.rebuild(body, self._regular_loop, lambda node: self._pool.facts(node).regular)

    def _is_sealed(self, node: Node) -> bool:
        """Whether there are loops over most characters, and none at the end."""
        if not any(map(_is_broad_loop, walk(node))):
            return False
        pending = [node]
        while pending:
            current = pending.pop()
            if _is_broad_loop(current):
                return False
            if isinstance(current, Seq):
                for item in reversed(current.items):
                    pending.append(item)
                    if not self._pool.facts(item).nullable:
                        break
            else:
                pending.extend(children(current))
        return True

    def _regular_loop(self, node: Node) -> Node | None:
        """A loop made regular, if putting in rules is all it takes."""
        if not isinstance(node, Repeat):
            return None
        options = node.item.options if isinstance(node.item, Alt) else (node.item,)
        # A rule that is a round by itself must go in even if it is sealed: a loop over a loop is ambiguous.
        opened = [self._regular.get(part.name, part) if isinstance(part, Ref) else part for part in options]
        loop = self._pool.repeat(self._pool.alt(*opened), node.minimum, node.maximum)
        loop = self._pool.substitute(loop, self._open)
        facts = self._pool.facts(loop)
        return loop if facts.regular and facts.positions <= MAX_LOOP_POSITIONS else None


def _is_regular(node: Node, regular: Container[str]) -> bool:
    return all(part.name in regular if isinstance(part, Ref) else not isinstance(part, TokenSet) for part in walk(node))


def _is_broad_loop(node: Node) -> bool:
    """Whether ``node`` is an unbounded loop over most characters, among others."""
    return (
        isinstance(node, Repeat)
        and node.maximum is None
        and any(isinstance(part, CharSet) and _width(part) >= BROAD_SET for part in walk(node.item))
    )


def _width(item: CharSet) -> int:
    return sum(high - low + 1 for low, high in item.ranges)
