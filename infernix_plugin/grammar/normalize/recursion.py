r"""Turn left and right recursion into repetition.

One rule that begins or ends with itself has a closed form. Sort its options into

    A  =  A g  |  p A  |  A d A  |  b

(an option that is just ``A`` adds nothing; ``g``, ``p``, ``d``, ``b`` may hold ``A`` further inside). Then

    A  =  u (g | d u)*      with  u = p* b.

The right side is closed under all four forms, so it holds everything that ``A`` derives. And ``A`` derives it:
``p* b`` by the second and fourth form, each further round by the first or the third. This is Arden's rule, and the
textbook removal of direct left recursion, as one formula that also makes ``e ::= e "+" e | n`` unambiguous.

Several rules that begin (or end) with each other are reduced to single ones by substituting at that end, as in
Paull's algorithm; a group that would grow too much is left as it is, for the engine copes with any grammar.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress

from infernix_plugin.grammar.analysis import components
from infernix_plugin.grammar.ir import Alt, Node, Ref, Repeat, Seq, TokenSet, children, walk
from infernix_plugin.grammar.normalize.draft import Draft

_FIRST, _LAST = 0, -1
"""The ends of a sequence, as indices."""

MAX_COPIES = 128
"""Most sequences that one rule's choices may be spread into."""
MAX_CYCLE = 32
"""Most rules of one left-recursive cycle."""
MAX_GROWTH = 1024
"""Most positions a group of rules may grow to, or four times what it had if that is more."""
MAX_COPIED_POSITIONS = 24
"""Largest operand that is written twice instead of becoming a rule."""


class _TooLargeError(Exception):
    """Rewriting this group costs more than it gains."""


def remove_recursion(draft: Draft) -> None:
    """Rewrite every group of mutually recursive rules, callees first."""
    regular: set[str] = set()
    for group in draft.order(draft.rules):
        written = {name: draft.rules[name] for name in group}
        if not all(draft.pool.facts(body).references.isdisjoint(written) for body in written.values()):
            written = _Group(draft, written, regular).solved()
            draft.rules.update(written)
        for names in draft.order(written):
            if len(names) == 1 and _is_regular(written[names[0]], regular):
                regular.add(names[0])


def _is_regular(node: Node, regular: Container[str]) -> bool:
    return all(part.name in regular if isinstance(part, Ref) else not isinstance(part, TokenSet) for part in walk(node))


class _Group:
    """Rules that need each other."""

    def __init__(self, draft: Draft, bodies: dict[str, Node], regular: set[str]) -> None:
        self._draft = draft
        self._pool = draft.pool
        self._bodies = bodies
        self._regular = regular
        self._operands: dict[str, Node] = {}
        self._budget = max(MAX_GROWTH, 4 * self._positions())

    def solved(self) -> dict[str, Node]:
        """The rules in closed form as far as that pays, and rules made for operands that are needed twice."""
        found = dict(self._bodies)
        with suppress(_TooLargeError):
            self._break_cycles()
            found = dict(self._bodies)
        for name, body in found.items():
            with suppress(_TooLargeError):
                found[name] = self._closed(name, body)
        return {**found, **self._operands}

    def _break_cycles(self) -> None:
        for end in (_FIRST, _LAST) if self._is_right_linear() else (_FIRST,):
            while cycle := self._cycle(end):
                if len(cycle) > MAX_CYCLE:
                    raise _TooLargeError
                self._open(cycle, end)

    def _positions(self) -> int:
        return sum(self._pool.facts(body).positions for body in self._bodies.values())

    def _is_right_linear(self) -> bool:
        """Whether the group is regular: rules of the group stand only at the very end of options."""
        for body in self._bodies.values():
            for option in self._exposed(body, _LAST, self._bodies):
                items = self._draft.items(option)
                inner = items[:-1] if items and _is_ref(items[-1], self._bodies) else items
                if not all(_is_regular(item, self._regular) for item in inner):
                    return False
        return True

    # -- several rules: break the cycles --------------------------------------------------------------------------

    def _cycle(self, end: int) -> list[str] | None:
        """Rules that lead to each other at one end."""
        edges = {name: list(self._at_end(body, end)) for name, body in self._bodies.items()}
        return next((group for group in components(edges) if len(group) > 1), None)

    def _at_end(self, node: Node, end: int) -> Iterator[str]:
        """The rules of the group that a text of ``node`` may begin or end with."""
        pending = [node]
        while pending:
            current = pending.pop()
            match current:
                case Ref(name) if name in self._bodies:
                    yield name
                case Seq(items):
                    for item in items if end == _FIRST else reversed(items):
                        pending.append(item)
                        if not self._pool.facts(item).nullable:
                            break
                case Alt() | Repeat():
                    pending.extend(children(current))

    def _open(self, cycle: list[str], end: int) -> None:
        """Take one rule out of a cycle: the others get its options in its place at that end."""
        victim = min(cycle, key=lambda name: (name == self._draft.root, self._pool.facts(self._bodies[name]).positions))
        self._bodies[victim] = self._closed(victim, self._bodies[victim])
        for name in cycle:
            if name == victim:
                continue
            opened: list[Node] = []
            for option in self._exposed(self._bodies[name], end, {victim}):
                items = self._draft.items(option)
                if items and _is_ref(items[end], {victim}):
                    rest = items[1:] if end == _FIRST else items[:-1]
                    for inner in self._draft.options(self._bodies[victim]):
                        opened.append(self._pool.seq(inner, *rest) if end == _FIRST else self._pool.seq(*rest, inner))
                else:
                    opened.append(option)
            self._bodies[name] = self._pool.alt(*opened)
            if victim in self._at_end(self._bodies[name], end) or self._positions() > self._budget:
                raise _TooLargeError

    def _exposed(self, body: Node, end: int, names: Container[str]) -> list[Node]:
        """The options of ``body``, spread until ``names`` stand alone at that end."""
        found: list[Node] = []
        pending = [body]
        copies = 0
        while pending:
            node = pending.pop()
            spread = self._draft.options(node)
            if len(spread) != 1:
                pending.extend(reversed(spread))
                continue
            items = self._draft.items(node)
            choice = self._draft.options(items[end]) if items else []
            if len(choice) > 1 and any(name in names for name in self._at_end(items[end], end)):
                rest = items[1:] if end == _FIRST else items[:-1]
                for option in reversed(choice):
                    pending.append(self._pool.seq(option, *rest) if end == _FIRST else self._pool.seq(*rest, option))
                copies += len(choice)
                if copies > MAX_COPIES:
                    raise _TooLargeError
                continue
            found.append(node)
        return found

    # -- one rule: the closed form ---------------------------------------------------------------------------------

    def _closed(self, name: str, body: Node) -> Node:
        pool = self._pool
        before, after, between, base = list[Node](), list[Node](), list[Node](), list[Node]()
        for half in self._exposed(body, _FIRST, {name}):
            for option in self._exposed(half, _LAST, {name}):
                items = self._draft.items(option)
                begins = bool(items) and _is_ref(items[0], {name})
                ends = bool(items) and _is_ref(items[-1], {name})
                if begins and ends:
                    if len(items) > 1:
                        between.append(pool.seq(*items[1:-1]))
                elif begins:
                    after.append(pool.seq(*items[1:]))
                elif ends:
                    before.append(pool.seq(*items[:-1]))
                else:
                    base.append(option)
        if not before and not after and not between:
            return body
        operand = pool.seq(pool.repeat(pool.alt(*before)), pool.alt(*base))
        if between and pool.facts(operand).positions > MAX_COPIED_POSITIONS:
            fresh = self._draft.fresh(name)
            self._operands[fresh] = operand
            operand = pool.ref(fresh)
        return pool.seq(operand, pool.repeat(pool.alt(*after, *(pool.seq(link, operand) for link in between))))


def _is_ref(node: Node, names: Container[str]) -> bool:
    return isinstance(node, Ref) and node.name in names
