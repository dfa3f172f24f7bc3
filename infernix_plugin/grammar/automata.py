"""Exact regular languages: deterministic automata for grammar nodes without references, intersections included.

States are found with derivatives (Brzozowski 1964; Owens, Reppy and Turon 2009): the derivative of a node by a
character is the node for what may follow it. Intersection and complement need no construction of their own, counts
are not written out, and only states that can be reached are ever made. Characters are Unicode scalar values, treated
in sets that a state cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import (
    EPSILON,
    MAX_SCALAR,
    Alt,
    And,
    CharSet,
    Grammar,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    alt,
    chars,
    charset,
    children,
    complement,
    seq,
)
from infernix_plugin.grammar.pool import Pool

MAX_AUTOMATON_STATES = 4096

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Automaton:
    """A deterministic finite automaton over Unicode scalar values that starts in state 0.

    ``moves[state]`` holds disjoint character sets and where they lead; a character in none of them is refused.
    """

    moves: tuple[tuple[tuple[CharSet, int], ...], ...]
    accepting: frozenset[int]

    def accepts(self, text: str) -> bool:
        """Whether ``text`` is in the language."""
        state = 0
        for char in text:
            state = next((target for letters, target in self.moves[state] if ord(char) in letters), -1)
            if state < 0:
                return False
        return state in self.accepting

    def is_empty(self) -> bool:
        """Whether no text is accepted."""
        return not self.minimized().accepting

    def complement(self) -> Automaton:
        """The automaton of all other texts."""
        sink = len(self.moves)
        moves = []
        for here in self.moves:
            rest = complement(charset(pair for letters, _ in here for pair in letters.ranges))
            moves.append((*here, (rest, sink)) if rest.ranges else here)
        moves.append(((complement(CharSet(())), sink),))
        accepting = frozenset(range(len(moves))) - self.accepting
        return Automaton(tuple(moves), accepting).minimized()

    def intersection(self, other: Automaton, *, limit: int = MAX_AUTOMATON_STATES) -> Automaton:
        """The automaton of the texts that both accept.

        Raises:
            ConstraintTooLarge: more than ``limit`` pairs of states are reached.
        """
        numbers = _Numbering((0, 0), limit)
        moves: list[tuple[tuple[CharSet, int], ...]] = []
        for mine, theirs in numbers:
            here: list[tuple[CharSet, int]] = []
            for letters, target in self.moves[mine]:
                for others, other_target in other.moves[theirs]:
                    common = _common(letters, others)
                    if common.ranges:
                        here.append((common, numbers.of((target, other_target))))
            moves.append(tuple(here))
        accepting = frozenset(
            number
            for number, (mine, theirs) in enumerate(numbers.values)
            if mine in self.accepting and theirs in other.accepting
        )
        return Automaton(tuple(moves), accepting).minimized()

    def minimized(self) -> Automaton:
        """The smallest automaton of the same language; equal languages give equal automata.

        States that cannot be reached or lead nowhere are dropped; the empty language has one state. Refinement of
        blocks after Moore (1956), states numbered breadth-first in the order of characters.
        """
        alive = self._alive()
        if 0 not in alive:
            return Automaton(((),), frozenset())
        block = {state: int(state in self.accepting) for state in alive}
        count = len(set(block.values()))
        while True:
            budget.checkpoint()
            numbers: dict[tuple[int, tuple[tuple[int, int, int], ...]], int] = {}
            block = {
                state: numbers.setdefault((block[state], self._signature(state, block)), len(numbers))
                for state in sorted(alive)
            }
            if len(numbers) == count:
                break
            count = len(numbers)
        member = {number: state for state, number in block.items()}
        order = _Numbering(block[0], len(member) + 1)
        moves: list[tuple[tuple[CharSet, int], ...]] = []
        for number in order:
            ranges: dict[int, list[tuple[int, int]]] = {}
            for low, high, target in self._signature(member[number], block):
                ranges.setdefault(order.of(target), []).append((low, high))
            moves.append(tuple((charset(pairs), target) for target, pairs in ranges.items()))
        accepting = frozenset(i for i, number in enumerate(order.values) if member[number] in self.accepting)
        return Automaton(tuple(moves), accepting)

    def _alive(self) -> set[int]:
        """The states from which an accepting one can be reached."""
        sources: dict[int, list[int]] = {}
        for state, here in enumerate(self.moves):
            for _, target in here:
                sources.setdefault(target, []).append(state)
        alive = set(self.accepting)
        pending = list(alive)
        while pending:
            for source in sources.get(pending.pop(), ()):
                if source not in alive:
                    alive.add(source)
                    pending.append(source)
        return alive

    def _signature(self, state: int, block: dict[int, int]) -> tuple[tuple[int, int, int], ...]:
        """The ranges that lead to each block, sorted, neighbours with the same target joined."""
        found = sorted(
            (low, high, block[target])
            for letters, target in self.moves[state]
            if target in block
            for low, high in letters.ranges
        )
        joined: list[tuple[int, int, int]] = []
        for low, high, target in found:
            if joined and joined[-1][1] + 1 == low and joined[-1][2] == target:
                joined[-1] = (joined[-1][0], high, target)
            else:
                joined.append((low, high, target))
        return tuple(joined)

    def grammar(self, prefix: str = "state") -> Grammar:
        """The language as right-linear rules, one for each state; the entry rule is that of state 0."""
        rules: dict[str, Node] = {}
        for state, here in enumerate(self.moves):
            options: list[Node] = [seq(letters, Ref(f"{prefix}{target}")) for letters, target in here]
            rules[f"{prefix}{state}"] = alt(*([EPSILON] if state in self.accepting else []), *options)
        return Grammar(rules, f"{prefix}0")

    def expression(self, pool: Pool, *, limit: int) -> Node | None:
        """The language as a pooled node without intersection and complement, or ``None`` above ``limit`` positions.

        State elimination (Brzozowski and McCluskey 1963): the state whose removal writes least goes first.
        """
        final = len(self.moves)
        out: dict[int, dict[int, Node]] = {
            state: {target: pool.adopt(letters) for letters, target in here} for state, here in enumerate(self.moves)
        }
        start = -1
        out[start] = {0: pool.epsilon}
        out[final] = {}
        for state in self.accepting:
            out[state][final] = pool.epsilon
        into: dict[int, set[int]] = {state: set() for state in out}
        for state, here_out in out.items():
            for target in here_out:
                into[target].add(state)

        def weight(state: int) -> int:
            arriving = [pool.facts(out[source][state]).positions for source in into[state] if source != state]
            leaving = [pool.facts(node).positions for target, node in out[state].items() if target != state]
            loop = pool.facts(out[state][state]).positions if state in out[state] else 0
            return sum(arriving) * len(leaving) + sum(leaving) * len(arriving) + loop * len(arriving) * len(leaving)

        waiting = set(range(final))
        while waiting:
            budget.checkpoint()
            state = min(waiting, key=lambda candidate: (weight(candidate), candidate))
            waiting.discard(state)
            loop = pool.repeat(out[state].pop(state)) if state in out[state] else pool.epsilon
            into[state].discard(state)
            for source in sorted(into[state]):
                first = out[source].pop(state)
                for target, last in out[state].items():
                    way = pool.seq(first, loop, last)
                    out[source][target] = pool.alt(out[source].get(target, pool.never), way)
                    into[target].add(source)
                    if pool.facts(out[source][target]).positions > limit:
                        return None
            for target in out.pop(state):
                into[target].discard(state)
        return out[start].get(final, pool.never)


def build(node: Node, *, limit: int = MAX_AUTOMATON_STATES) -> Automaton:
    """The smallest automaton of a node without references and tokens.

    Raises:
        ConstraintTooLarge: more than ``limit`` states are reached before minimising.
        ValueError: the node is not regular.
    """
    derivatives = _Derivatives(node)
    numbers = _Numbering(derivatives.start, limit)
    moves: list[tuple[tuple[CharSet, int], ...]] = []
    for state in numbers:
        moves.append(tuple((letters, numbers.of(target)) for letters, target in derivatives.moves(state)))
    accepting = frozenset(number for number, state in enumerate(numbers.values) if derivatives.accepts(state))
    return Automaton(tuple(moves), accepting).minimized()


def is_empty(node: Node, *, limit: int = MAX_AUTOMATON_STATES) -> bool:
    """Whether a node without references and tokens has no text at all.

    Raises:
        ConstraintTooLarge: no text was found in ``limit`` states.
        ValueError: the node is not regular.
    """
    derivatives = _Derivatives(node)
    numbers = _Numbering(derivatives.start, limit)
    for state in numbers:
        if derivatives.surely_has_texts(state):
            return False
        for _, target in derivatives.moves(state):
            numbers.of(target)
    return True


class _Numbering(Generic[Key]):
    """Numbers things in the order they turn up. Iterating gives them in that order, also those added meanwhile."""

    def __init__(self, first: Key, limit: int) -> None:
        self.values = [first]
        self._numbers = {self._mark(first): 0}
        self._limit = limit

    @staticmethod
    def _mark(value: Key) -> object:
        """Pooled nodes are equal only if identical, and hashing them would recurse."""
        return value if isinstance(value, tuple | int) else id(value)

    def of(self, value: Key) -> int:
        number = self._numbers.setdefault(self._mark(value), len(self.values))
        if number == len(self.values):
            if number == self._limit:
                raise ConstraintTooLarge(
                    f"The automaton has more than {self._limit} states",
                    hint="Use smaller counts, or fewer and simpler conditions on one string.",
                )
            self.values.append(value)
        return number

    def __iter__(self) -> Iterator[Key]:
        seen = 0
        while seen < len(self.values):
            budget.checkpoint()
            yield self.values[seen]
            seen += 1


class _Derivatives:
    """States of a node's automaton as nodes of one pool. Nothing recurses, however deep the node."""

    def __init__(self, node: Node) -> None:
        self._pool = Pool()
        self.start = self._pool.adopt(node)
        if not self._pool.facts(self.start).regular:
            raise ValueError("an automaton needs a node without references and tokens")
        self._known: dict[tuple[int, int], Node] = {}

    def accepts(self, state: Node) -> bool:
        return self._pool.facts(state).nullable

    def surely_has_texts(self, state: Node) -> bool:
        """Whether one look is enough: the pool leaves no empty part in a node without intersections."""
        facts = self._pool.facts(state)
        return facts.nullable or (facts.plain and state is not self._pool.never)

    def moves(self, state: Node) -> Iterator[tuple[CharSet, Node]]:
        """The sets of characters that ``state`` tells apart, and what each leads to; dead ends are left out."""
        for letters in _partition(self._first_sets(state)):
            target = self._derivative(state, letters.ranges[0][0])
            if target is not self._pool.never:
                yield letters, target

    def _first_sets(self, state: Node) -> list[CharSet]:
        """The character sets and first characters of texts that decide on the next step."""
        found: dict[CharSet, None] = {}
        pending = [state]
        seen: set[int] = set()
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            match node:
                case Literal(text) if text:
                    found[chars(text[0])] = None
                case CharSet():
                    found[node] = None
                case _:
                    pending.extend(self._in_front(node))
        return list(found)

    def _in_front(self, node: Node) -> tuple[Node, ...]:
        """The children that the next character can belong to."""
        if not isinstance(node, Seq):
            return children(node)
        count = next((i for i, item in enumerate(node.items, 1) if not self.accepts(item)), len(node.items))
        return node.items[:count]

    def _derivative(self, node: Node, scalar: int) -> Node:
        """What may follow ``scalar`` in the texts of ``node`` that begin with it."""
        pending = [(node, False)]
        while pending:
            current, ready = pending.pop()
            if (id(current), scalar) in self._known:
                continue
            below = self._in_front(current)
            if below and not ready:
                pending.append((current, True))
                pending.extend((child, False) for child in below)
                continue
            self._known[id(current), scalar] = self._step(current, scalar, [self._known[id(b), scalar] for b in below])
        return self._known[id(node), scalar]

    def _step(self, node: Node, scalar: int, below: list[Node]) -> Node:
        """One level of the derivative, from the derivatives of the children in front."""
        pool = self._pool
        match node:
            case Literal(text):
                return pool.literal(text[1:]) if text and ord(text[0]) == scalar else pool.never
            case CharSet():
                return pool.epsilon if scalar in node else pool.never
            case Seq(items):
                return self._union(pool.seq(part, *items[i:]) for i, part in enumerate(below, 1))
            case Alt():
                return self._union(below)
            case Repeat(item, minimum, maximum):
                rest = pool.repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
                return pool.seq(below[0], rest)
            case And():
                return pool.intersection(*below)
            case Not():
                return pool.complement(below[0])
            case _:
                raise ValueError(f"{type(node).__name__} is not regular")

    def _union(self, options: Iterable[Node]) -> Node:
        """A choice in a fixed order, so that states that differ in nothing else are one."""
        return self._pool.alt(*sorted(options, key=lambda option: self._pool.facts(option).serial))


def _partition(sets: list[CharSet]) -> Iterator[CharSet]:
    """All scalar values, split by which of ``sets`` they are in."""
    changes: dict[int, int] = {0: 0, MAX_SCALAR + 1: 0}
    for index, letters in enumerate(sets):
        for low, high in letters.ranges:
            changes[low] = changes.get(low, 0) ^ (1 << index)
            changes[high + 1] = changes.get(high + 1, 0) ^ (1 << index)
    groups: dict[int, list[tuple[int, int]]] = {}
    inside = 0
    for low, after in pairwise(sorted(changes)):
        inside ^= changes[low]
        groups.setdefault(inside, []).append((low, after - 1))
    for ranges in groups.values():
        letters = charset(ranges)
        if letters.ranges:
            yield letters


def _common(left: CharSet, right: CharSet) -> CharSet:
    return charset(
        (max(low, other_low), min(high, other_high))
        for low, high in left.ranges
        for other_low, other_high in right.ranges
        if low <= other_high and other_low <= high
    )
