"""Assertions inside a regular expression, worked out: what is left is a plain regular language.

A text is split by every assertion into what stands before it and what stands after it. Reading from left to right,
what stands before is a language of its own by then, so a condition on it is an intersection; what stands after is the
language of the rest, so a condition on that is one as well. Only a loop whose body asserts something has no such form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    EPSILON,
    NEVER,
    Alt,
    And,
    CharSet,
    Literal,
    Node,
    Not,
    Repeat,
    Seq,
    alt,
    repeat,
    seq,
    walk,
)

MAX_SPLITS = 256
"""Most ways through alternatives, options and counted rounds that assert something."""
_ANYTHING = repeat(ANY_CHAR)
_SOMETHING = repeat(ANY_CHAR, 1)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on a place in the text: that ``item`` is (or, ``negative``, is not) found right after or before it.

    It stands in a tree where a node can stand, until :func:`resolve` has worked it out. ``item`` may hold others.
    """

    item: Node
    behind: bool = False
    negative: bool = False

    @property
    def node(self) -> Node:
        """The assertion as the leaf of a tree."""
        return cast("Node", self)


START = Assertion(ANY_CHAR, behind=True, negative=True)
END = Assertion(ANY_CHAR, negative=True)


class Unresolved(Exception):
    """An assertion that is not worked out; the text says why."""


def boundary(word: CharSet, *, negative: bool) -> Node:
    """Between a word character and another one or an end of the text; or, ``negative``, anywhere else."""
    behind, ahead = Assertion(word, behind=True), Assertion(word)
    if negative:
        pairs = [(behind, ahead), (replace(behind, negative=True), replace(ahead, negative=True))]
    else:
        pairs = [(behind, replace(ahead, negative=True)), (replace(behind, negative=True), ahead)]
    return Alt(tuple(Seq((first.node, second.node)) for first, second in pairs))


def asserts(node: Node) -> bool:
    """Whether an assertion is left in the tree."""
    return any(isinstance(part, Assertion) for part in walk(node))


def resolve(node: Node) -> Node:
    """The texts in which the expression ``node`` is found somewhere, as a node without assertions.

    Raises:
        Unresolved: an assertion in a loop, one that looks behind from inside a lookahead, or too many ways to split.
    """
    return _Resolver().rest(_Place(_ANYTHING, starts=True), (node,))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reader stands: after a text of ``before``, which began at the start of the whole text if ``starts``, and
    otherwise certainly not there."""

    before: Node
    starts: bool

    def after(self, node: Node) -> _Place:
        return replace(self, before=seq(self.before, node))


class _Resolver:
    def __init__(self) -> None:
        self._splits = 0

    def rest(self, place: _Place, items: tuple[Node, ...]) -> Node:
        """The texts from where ``place`` began in which ``items`` come next, then anything."""
        while items:
            item, *others = items
            items = tuple(others)
            if not asserts(item):
                place = place.after(item)
                continue
            match item:
                case Seq(parts):
                    items = (*parts, *items)
                case Alt(options):
                    return self._either(place, options, items)
                case Repeat(repeated, minimum, maximum):
                    return self._either(place, self._rounds(repeated, minimum, maximum), items)
                case _:
                    assertion = cast("Assertion", item)
                    if assertion.behind:
                        place = replace(place, before=self._behind(place, assertion))
                    else:
                        return self._ahead(place, assertion, items)
            if place.before == NEVER:
                return NEVER
        return seq(place.before, _ANYTHING)

    def _either(self, place: _Place, options: tuple[Node, ...], items: tuple[Node, ...]) -> Node:
        self._splits += len(options)
        if self._splits > MAX_SPLITS:
            raise Unresolved("has assertions in too many alternatives")
        return alt(*(self.rest(place, (option, *items)) for option in options))

    @staticmethod
    def _rounds(item: Node, minimum: int, maximum: int | None) -> tuple[Node, ...]:
        if maximum is None or maximum > MAX_SPLITS:
            raise Unresolved("has an assertion inside a loop")
        return tuple(Seq((item,) * count) if count else EPSILON for count in range(minimum, maximum + 1))

    def _behind(self, place: _Place, assertion: Assertion) -> Node:
        """What stands before, as far as the assertion holds after it."""
        if asserts(assertion.item):
            raise Unresolved("has an assertion inside a lookbehind")
        if assertion == START:
            return EPSILON if place.starts and _nullable(place.before) else NEVER
        if not place.starts:
            longest = _lengths(assertion.item)[1]
            if longest is None or longest > _lengths(place.before)[0]:
                raise Unresolved("looks behind from inside or after a lookahead")
        found = seq(_ANYTHING, assertion.item)
        return _both(place.before, Not(found) if assertion.negative else found)

    def _ahead(self, place: _Place, assertion: Assertion, items: tuple[Node, ...]) -> Node:
        parts = []
        for here in self._starts(place):
            inner = _Place(EPSILON, starts=here.starts and here.before == EPSILON)
            following = self.rest(inner, items)
            if assertion == END:
                parts.append(here.before if _nullable(following) else NEVER)
                continue
            found = self.rest(inner, (assertion.item,))
            parts.append(seq(here.before, _both(Not(found) if assertion.negative else found, following)))
        return alt(*parts)

    @staticmethod
    def _starts(place: _Place) -> list[_Place]:
        """The place, told apart by whether it is the start of the text, which what comes next may ask."""
        if place.before == EPSILON or not place.starts or not _nullable(place.before):
            return [place]
        return [_Place(EPSILON, starts=True), _Place(_both(place.before, _SOMETHING), starts=True)]


def _both(left: Node, right: Node) -> Node:
    if NEVER in (left, right) or Not(_ANYTHING) in (left, right):
        return NEVER
    if _ANYTHING in (left, right) or Not(NEVER) in (left, right):
        return right if left in (_ANYTHING, Not(NEVER)) else left
    if (left, right) == (_ANYTHING, _SOMETHING):
        return _SOMETHING
    return And((left, right))


def _nullable(node: Node) -> bool:
    match node:
        case Literal(text):
            return not text
        case Seq(items) | And(items):
            return all(map(_nullable, items))
        case Alt(options):
            return any(map(_nullable, options))
        case Repeat(item, minimum):
            return not minimum or _nullable(item)
        case Not(item):
            return not _nullable(item)
        case _:
            return False


def _lengths(node: Node) -> tuple[int, int | None]:
    """Bounds of the lengths of the texts, not always tight."""
    match node:
        case Literal(text):
            return len(text), len(text)
        case CharSet():
            return 1, 1
        case Seq(items):
            bounds = [_lengths(item) for item in items]
            return sum(low for low, _ in bounds), _total([high for _, high in bounds])
        case Alt(options):
            bounds = [_lengths(option) for option in options]
            highs = [high for _, high in bounds]
            longest = None if None in highs else max((high for high in highs if high is not None), default=0)
            return min((low for low, _ in bounds), default=0), longest
        case Repeat(item, minimum, maximum):
            low, high = _lengths(item)
            return low * minimum, None if high is None or maximum is None else high * maximum
        case And(items):
            return max(_lengths(item)[0] for item in items), None
        case _:
            return 0, None


def _total(lengths: list[int | None]) -> int | None:
    return None if None in lengths else sum(length for length in lengths if length is not None)
