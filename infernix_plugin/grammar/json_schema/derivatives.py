"""Membership and emptiness of intersections of regular languages, by Brzozowski derivatives.

A state is one expression per language: what may still follow. Nodes of one pool are one object per structure, so
states compare by identity and derivatives are computed once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import SharedFold
from infernix_plugin.grammar.ir import And, CharSet, Literal, Node, Not, Repeat, Seq, children
from infernix_plugin.grammar.pool import Pool

MAX_STATES = 16384
"""Most states that a search for a common member visits."""


class Undecided(Exception):
    """The search for a common member was given up."""


class Derivatives:
    """What may follow a character in a language, computed once per language and character."""

    def __init__(self) -> None:
        self.pool = Pool()
        self._adopted: dict[int, tuple[Node, Node]] = {}
        self._known: dict[tuple[int, str], Node] = {}

    def adopt(self, language: Node) -> Node:
        """The pooled node of a regular language, given without Ref and Lexeme."""
        known = self._adopted.get(id(language))
        if known is None or known[0] is not language:
            known = self._adopted[id(language)] = language, self.pool.adopt(language)
        return known[1]

    def after(self, node: Node, char: str) -> Node:
        """What may follow ``char`` at the start of a member of the pooled ``node``."""
        key = (id(node), char)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._derivative(node, char)
        return known

    def _derivative(self, node: Node, char: str) -> Node:
        pool = self.pool
        match node:
            case Literal(text):
                return pool.literal(text[1:]) if text.startswith(char) else pool.never
            case CharSet():
                return pool.epsilon if ord(char) in node else pool.never
            case Seq(items):
                options = []
                for index, item in enumerate(items):
                    options.append(pool.seq(self.after(item, char), *items[index + 1 :]))
                    if not pool.facts(item).nullable:
                        break
                return pool.alt(*options)
            case Repeat(item, minimum, maximum):
                rest = pool.repeat(item, max(0, minimum - 1), None if maximum is None else maximum - 1)
                return pool.seq(self.after(item, char), rest)
            case And(items):
                return pool.intersection(*(self.after(item, char) for item in items))
            case Not(item):
                return pool.complement(self.after(item, char))
            case _:
                return pool.alt(*(self.after(option, char) for option in budget.watched(children(node))))


class Intersection:
    """The strings that are in every one of some regular languages, given without Ref and Lexeme."""

    def __init__(
        self, languages: Sequence[Node], derivatives: Derivatives | None = None, *, most_states: int = MAX_STATES
    ) -> None:
        """Intersections of much the same languages should share their ``derivatives``."""
        self.most_states = most_states
        self._derivatives = derivatives or Derivatives()
        self._pool = self._derivatives.pool
        adopted = [self._derivatives.adopt(language) for language in languages]
        # Complements last: most characters lead nowhere in one of the others.
        self._start = tuple(sorted(adopted, key=lambda part: isinstance(part, Not)))
        self._member: str | None = None  # one that a search found

    def __contains__(self, text: str) -> bool:
        state: tuple[Node, ...] = self._start
        for char in text:
            state = tuple(self._derivatives.after(part, char) for part in state)
        return self._accepts(state)

    def is_empty(self, excluded: Collection[str] = ()) -> bool:
        """Whether no string is in all of them but the ``excluded`` ones.

        Raises:
            Undecided: ``most_states`` states did not settle it.
        """
        if self._member is not None and self._member not in excluded:
            return False
        letters = representatives(self._start, "".join(excluded))
        # As a language, a long list would be derived word by word; its state is what was read as long as that matters.
        begun = {text[:length] for text in excluded for length in range(len(text) + 1)}
        beginning = "" if begun else None
        seen = {(beginning, *map(id, self._start))}
        path = [(self._start, beginning, iter(letters))]  # depth first: most searches end at their first member
        read: list[str] = []
        while path:
            budget.checkpoint()
            state, beginning, untried = path[-1]
            if self._accepts(state) and (beginning is None or beginning not in excluded):
                self._member = "".join(read)
                return False
            for char in untried:
                following = self._after(state, char)
                if following is None:
                    continue
                text = None if beginning is None or beginning + char not in begun else beginning + char
                key = (text, *map(id, following))
                if key not in seen:
                    seen.add(key)
                    path.append((following, text, iter(letters)))
                    read.append(char)
                    break
            else:
                path.pop()
                del read[-1:]
            if len(seen) > self.most_states:
                raise Undecided
        return True

    def at_least(self, enough: int) -> int:
        """So many strings, or more, are in all of them; neither counted further than ``enough`` nor searched long."""
        letters = representatives(self._start)
        found, searched = 0, 0
        pending: deque[tuple[Node, ...]] = deque([self._start])
        while pending and found < enough and searched < self.most_states:
            budget.checkpoint()
            state = pending.popleft()
            searched += 1
            found += self._accepts(state)
            pending.extend(after for char in letters if (after := self._after(state, char)) is not None)
        return found

    def _after(self, state: Iterable[Node], char: str) -> tuple[Node, ...] | None:
        """The state behind a character; ``None`` if one language has no text that goes on with it."""
        found: list[Node] = []
        for part in state:
            after = self._derivatives.after(part, char)
            if after is self._pool.never:
                return None
            found.append(after)
        return tuple(found)

    def _accepts(self, state: Iterable[Node]) -> bool:
        return all(self._pool.facts(part).nullable for part in state)


def _own_sets(node: Node, below: list[_Sets]) -> _Sets:
    if isinstance(node, CharSet):
        return frozenset([node.ranges])
    if isinstance(node, Literal):
        return frozenset(((ord(char), ord(char)),) for char in node.text)
    return frozenset[tuple[tuple[int, int], ...]]().union(*below) if len(below) != 1 else below[0]


_Sets = frozenset[tuple[tuple[int, int], ...]]
"""Sets of characters by their ranges."""

_sets = SharedFold(_own_sets)


def representatives(nodes: Iterable[Node], text: str = "") -> list[str]:
    """One character for every way of being inside or outside the sets and literals of the nodes, or equal to one of
    ``text``."""
    sets = frozenset(((ord(char), ord(char)),) for char in text).union(*map(_sets, nodes))
    crossings: dict[int, int] = {0: 0, 0xE000: 0}
    for bit, ranges in enumerate(sets):
        for low, high in ranges:
            for edge in (low, high + 1):
                crossings[edge] = crossings.get(edge, 0) ^ 1 << bit
    membership = 0
    found: dict[int, str] = {}
    for scalar, crossed in sorted(crossings.items()):
        membership ^= crossed
        if scalar <= 0x10FFFF and not 0xD800 <= scalar <= 0xDFFF:
            found.setdefault(membership, chr(scalar))
    return list(found.values())
