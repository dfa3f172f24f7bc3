"""Write regular languages with fewer intersections, complements and counts, exactly.

An engine has to prove of every state of an intersection that some text is left, which takes most of the time of its
masks; and counts that can never be reached keep states apart that are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import automata, budget
from infernix_plugin.grammar.analysis import fold
from infernix_plugin.grammar.ir import Alt, And, CharSet, Literal, Node, Not, Repeat, Seq, Words, rebuilt, walk
from infernix_plugin.grammar.pool import Pool

MAX_STATES = 64
"""Largest automaton of an intersection or a complement that :func:`plainer` writes out."""
MAX_POSITIONS = 128
"""Largest expression it may become."""


def expression(pool: Pool, node: Node, *, states: int, positions: int) -> Node | None:
    """A pooled regular node as an expression without And and Not, or ``None`` past so many states or positions."""
    try:
        return automata.build(node, limit=states).expression(pool, limit=positions)
    except budget.CompileTimeout:
        raise
    except ConstraintTooLarge:
        return None


def plainer(node: Node) -> Node:
    """The same language of a regular ``node``: small intersections and complements worked out, counts dropped that an
    intersection with shorter texts makes useless."""
    if not any(isinstance(part, And | Not) for part in walk(node)):
        return node
    work = _Work()
    return fold(work.pool.rebuild(node, work.replaced), _uncounted)


class _Work:
    """Intersections and complements worked out in a pool, from the inside to the outside."""

    def __init__(self) -> None:
        self.pool = Pool()

    def replaced(self, node: Node) -> Node | None:
        """What may stand for a pooled node."""
        if not isinstance(node, And | Not):
            return None
        if not any(map(_counts_far, walk(node))):
            made = self._expression(node)
            if made is not None:
                return made
        return self._narrowed(node) if isinstance(node, And) else None

    def _narrowed(self, node: And) -> Node:
        """An intersection that is too large, its small parts without what its counted letters rule out anyway."""
        letters = [item.item for item in node.items if isinstance(item, Repeat) and isinstance(item.item, CharSet)]
        within = self.pool.intersection(*map(self.pool.repeat, letters))
        return self.pool.intersection(*(self._within(item, within) for item in node.items))

    def _within(self, item: Node, within: Node) -> Node:
        if any(map(_counts_far, walk(item))):
            return item
        made = self._expression(self.pool.intersection(item, within))
        return item if made is None or self._size(made) > self._size(item) else made

    def _expression(self, node: Node) -> Node | None:
        return expression(self.pool, node, states=MAX_STATES, positions=MAX_POSITIONS)

    def _size(self, node: Node) -> int:
        return self.pool.facts(node).positions


def _counts_far(node: Node) -> bool:
    """Whether a count alone is too large for an automaton, in all but odd cases."""
    return isinstance(node, Repeat) and max(node.minimum, node.maximum or 0) > MAX_STATES


class _Lengths(NamedTuple):
    """The least and the most characters of a text; no most is ``None``. Both are bounds, not always reached."""

    least: int
    most: int | None


def _lengths(node: Node, below: list[_Lengths]) -> _Lengths:
    match node:
        case Literal(text):
            return _Lengths(len(text), len(text))
        case Words(texts):
            return _Lengths(min(map(len, texts)), max(map(len, texts)))
        case CharSet():
            return _Lengths(1, 1)
        case Seq():
            return _Lengths(sum(part.least for part in below), _sum(part.most for part in below))
        case Alt():
            return _Lengths(min((part.least for part in below), default=0), _largest([part.most for part in below]))
        case Repeat(_, minimum, maximum):
            (part,) = below
            most = None if part.most is None or maximum is None else part.most * maximum
            return _Lengths(part.least * minimum, 0 if part.most == 0 else most)
        case And():
            known = [part.most for part in below if part.most is not None]
            return _Lengths(max(part.least for part in below), min(known, default=None))
    return _Lengths(0, None)


def _sum(most: Iterable[int | None]) -> int | None:
    total = 0
    for part in most:
        if part is None:
            return None
        total += part
    return total


def _largest(most: list[int | None]) -> int | None:
    known = [part for part in most if part is not None]
    return max(known, default=0) if len(known) == len(most) else None


def _uncounted(node: Node, below: list[Node]) -> Node:
    """A node over parts that are done; an intersection with a longest text spares its other parts larger counts."""
    node = rebuilt(node, below)
    if not isinstance(node, And):
        return node
    lengths = [fold(item, _lengths).most for item in node.items]
    longest = min((most for most in lengths if most is not None), default=None)
    if longest is None:
        return node
    bounding = lengths.index(longest)  # it has to stay as it is
    items = [item if index == bounding else _spared(item, longest) for index, item in enumerate(node.items)]
    return rebuilt(node, items)


def _spared(node: Node, longest: int) -> Node:
    """A node with the same texts up to a length, and without counts whose next round would be longer."""

    def combine(part: Node, below: list[tuple[Node, _Lengths]]) -> tuple[Node, _Lengths]:
        part = rebuilt(part, [node for node, _ in below])
        lengths = [known for _, known in below]
        if isinstance(part, Repeat) and part.maximum is not None and (part.maximum + 1) * lengths[0].least > longest:
            part = Repeat(part.item, part.minimum, None)
        return part, _lengths(part, lengths)

    return fold(node, combine)[0]
