"""Questions about a grammar that need a look at all its rules.

Nothing here recurses: a grammar may be thousands of nodes or rules deep. Costs are linear in the grammar except
within a group of mutually recursive rules, where the fix-point may take several rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import (
    Alt,
    And,
    CharSet,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    TokenSet,
    Words,
    children,
    rebuilt,
    walk,
)

Value = TypeVar("Value")


def fold(node: Node, combine: Callable[[Node, list[Value]], Value], leaf: type[Node] | None = None) -> Value:
    """Compute a value bottom up: ``combine`` gets every node with the values of its children, in order.

    Nodes of the type ``leaf`` are taken to have no children.
    """
    values: list[Value] = []
    pending: list[tuple[Node, bool]] = [(node, False)]
    for current, ready in budget.drained(pending):
        below = () if leaf is not None and isinstance(current, leaf) else children(current)
        if below and not ready:
            pending.append((current, True))
            pending.extend((child, False) for child in reversed(below))
            continue
        cut = len(values) - len(below)
        values[cut:] = [combine(current, values[cut:])]
    return values[0]


class SharedFold(Generic[Value]):
    """A :func:`fold` that remembers its values for nodes that front ends keep and use again and again.

    Nodes are known by identity, as hashing a large node costs as much as folding it. What is remembered is bounded,
    and all forgotten when the bound is reached. Thread-safe.
    """

    BUDGET = 1 << 18
    """Sum of the weights of all remembered nodes; a weight is about the number of nodes."""
    _PART = range(8, 65)
    """Weights of the nodes that are worth remembering as parts of others."""

    def __init__(self, combine: Callable[[Node, list[Value]], Value], leaf: type[Node] | None = None) -> None:
        """The arguments are those of :func:`fold`; ``combine`` must be a pure function."""
        self._combine = combine
        self._leaf = leaf
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Node, int, Value]] = {}
        self._held = 0

    def __call__(self, root: Node) -> Value:
        """The value of ``root``."""
        entry = self._known.get(id(root))
        if entry is not None and entry[0] is root:
            return entry[2]
        found: dict[int, tuple[Node, int, Value]] = {}
        order: list[tuple[Node, tuple[Node, ...]]] = []
        pending = [root]
        for node in budget.watched(pending):  # grows: every node comes after the one it is in
            entry = self._known.get(id(node))
            if entry is not None and entry[0] is node:
                found[id(node)] = entry
                continue
            below = () if self._leaf is not None and isinstance(node, self._leaf) else children(node)
            order.append((node, below))
            pending.extend(below)
        for node, below in budget.watched(reversed(order)):
            if id(node) in found:
                continue
            weight, values = _own_weight(node), []
            for child in below:
                _, below_weight, value = found[id(child)]
                weight += below_weight
                values.append(value)
            found[id(node)] = entry = (node, weight, self._combine(node, values))
            if node is root or weight in self._PART:
                self._remember(entry)
        return found[id(root)][2]

    def _remember(self, entry: tuple[Node, int, Value]) -> None:
        node, weight, _ = entry
        if weight > self.BUDGET:
            return
        with self._lock:
            if self._held + weight > self.BUDGET:
                self._known.clear()
                self._held = 0
            old = self._known.get(id(node))
            if old is None or old[0] is not node:
                self._known[id(node)] = entry  # it holds the node, so its identity is not reused
                self._held += weight


def _own_weight(node: Node) -> int:
    if isinstance(node, Literal):
        return 1 + len(node.text) // 16
    if isinstance(node, Words):
        return sum(1 + len(text) // 16 for text in node.texts)
    return 1 + len(node.ranges) if isinstance(node, CharSet) else 1


class Outline(NamedTuple):
    """What a rule's body shows outside its lexemes."""

    leaves: tuple[Node, ...]
    """The nodes without children, last to first; lexemes are such: there is no reference or token in them."""
    references: tuple[str, ...]
    """The names of the rules among them, with repetitions."""
    intersects: bool
    """Whether there is an :class:`And` or a :class:`Not`."""
    outer: int
    """The number of nodes; those inside lexemes do not count, the lexemes themselves neither."""


class _Outlines:
    """Remembers outlines by the identity of the body, as every step of a compilation asks for them. Thread-safe."""

    BUDGET = 1 << 17
    """Sum of the leaves of all remembered bodies; all are forgotten when it is reached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Node, Outline]] = {}
        self._held = 0

    def __call__(self, node: Node) -> Outline:
        known = self._known.get(id(node))
        if known is not None and known[0] is node:
            return known[1]
        found = _outline(node)
        if len(found.leaves) <= self.BUDGET:
            with self._lock:
                self._held += len(found.leaves)
                if self._held > self.BUDGET:
                    self._known.clear()
                    self._held = len(found.leaves)
                self._known[id(node)] = node, found  # it holds the node, so its identity is not reused
        return found


def _outline(node: Node) -> Outline:
    found: list[Node] = []
    intersects = False
    outer = 0
    pending = [node]
    for current in budget.drained(pending):
        outer += not isinstance(current, Lexeme)
        below = () if isinstance(current, _LEAVES) else children(current)
        intersects = intersects or isinstance(current, _OPERATORS)
        if below:
            pending.extend(below)
        else:
            found.append(current)
    return Outline(tuple(found), tuple([leaf.name for leaf in found if isinstance(leaf, Ref)]), intersects, outer)


_LEAVES = (Ref, Literal, Lexeme)
_OPERATORS = (And, Not)

outline = _Outlines()
"""The :class:`Outline` of a node."""


def leaves(node: Node) -> tuple[Node, ...]:
    """The nodes without children below and including ``node``; lexemes are such."""
    return outline(node).leaves


def references(node: Node) -> tuple[str, ...]:
    """The names of the rules ``node`` refers to, with repetitions."""
    return outline(node).references


def size(grammar: Grammar) -> int:
    """The number of nodes of all rules."""
    return sum(map(nodes, grammar.rules.values()))


def nodes(node: Node) -> int:
    """The number of nodes of one rule's body, those inside its lexemes included."""
    found = outline(node)
    return found.outer + sum(_inside(leaf).nodes for leaf in found.leaves if isinstance(leaf, Lexeme))


def prefixed(grammar: Grammar, prefix: str) -> dict[str, Node]:
    """The rules with ``prefix_`` before their names."""

    def renamed(node: Node, below: list[Node]) -> Node:
        return Ref(f"{prefix}_{node.name}") if isinstance(node, Ref) else rebuilt(node, below)

    return {f"{prefix}_{name}": fold(body, renamed, Lexeme) for name, body in grammar.rules.items()}


def undefined(grammar: Grammar) -> dict[str, str]:
    """The names that are referred to but not defined, each with the first rule that does so.

    A missing entry rule counts, and is said to be referred to by itself.
    """
    missing: dict[str, str] = {} if grammar.root in grammar.rules else {grammar.root: grammar.root}
    for rule, body in grammar.rules.items():
        for name in references(body):
            if name not in grammar.rules:
                missing.setdefault(name, rule)
    return missing


def reachable(grammar: Grammar) -> set[str]:
    """The rules that the entry rule needs, itself included."""
    seen = {grammar.root}
    pending = [grammar.root]
    for rule in budget.drained(pending):
        for name in references(grammar.rules[rule]):
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return seen


def components(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components of a graph, every component after those it points to (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_path: set[str] = set()
    path: list[str] = []
    found: list[list[str]] = []
    for start in budget.watched(edges):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        calls = [(start, iter(edges[start]))]
        while calls:
            name, successors = calls[-1]
            for successor in budget.watched(successors):
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    path.append(successor)
                    on_path.add(successor)
                    calls.append((successor, iter(edges[successor])))
                    break
                if successor in on_path:
                    low[name] = min(low[name], index[successor])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[name])
                if low[name] == index[name]:
                    group = [path.pop()]
                    while group[-1] != name:
                        group.append(path.pop())
                    on_path.difference_update(group)
                    found.append(group[::-1])
    return found


def dependency_order(rules: Mapping[str, Node]) -> list[list[str]]:
    """Groups of mutually recursive rules, every group after the groups it refers to. References must be defined."""
    return components({name: dict.fromkeys(references(body)) for name, body in rules.items()})


def reference_depth(rules: Mapping[str, Node]) -> int:
    """How many rules the longest chain of references goes through; mutually recursive rules all count."""
    depths: dict[str, int] = {}
    for group in dependency_order(rules):
        below = (depths.get(used, 0) for name in group for used in references(rules[name]))
        depth = max(below, default=0) + len(group)
        depths.update(dict.fromkeys(group, depth))
    return max(depths.values(), default=0)


def _least_fixpoint(rules: Mapping[str, Node], holds: Callable[[Node, set[str]], bool]) -> set[str]:
    """The rules for which a monotone property can be derived; ``holds`` gets a body and what is proven."""
    uses = {name: dict.fromkeys(references(body)) for name, body in rules.items()}
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, used_rules in uses.items():
        for used in used_rules:
            users[used].add(name)
    proven: set[str] = set()
    for group in components(uses):
        members = set(group)
        waiting = members
        while waiting:
            budget.checkpoint()
            found = {name for name in waiting if holds(rules[name], proven)}
            proven |= found
            waiting = {user for name in found for user in users[name] if user in members} - proven
    return proven


def productive(grammar: Grammar) -> set[str]:
    """The rules with a non-empty language, where :class:`And` and :class:`Not` are taken to be satisfiable.

    :mod:`infernix_plugin.grammar.automata` decides those exactly.
    """

    def is_sound(leaf: Node, proven: set[str]) -> bool:
        match leaf:
            case Ref(name):
                return name in proven
            case Lexeme():
                return _inside(leaf).productive
            case CharSet(ranges):
                return bool(ranges)
            case TokenSet(ids, exclude):
                return exclude or bool(ids)
            case Alt():
                return False
            case _:
                return True

    def holds(node: Node, proven: set[str]) -> bool:
        def combine(part: Node, below: list[bool]) -> bool:
            match part:
                case Alt():
                    return any(below)
                case Repeat(_, minimum, _):
                    return minimum == 0 or below[0]
                case Not():
                    return True
                case _:
                    return all(below) if below else is_sound(part, proven)

        # Nearly always nothing at all is empty, and there is nothing to be worked out.
        return all(is_sound(leaf, proven) for leaf in leaves(node)) or fold(node, combine, Lexeme)

    return _least_fixpoint(grammar.rules, holds)


def nullable_rules(grammar: Grammar) -> set[str]:
    """The rules that match the empty string."""
    return _least_fixpoint(grammar.rules, nullable)


def nullable(node: Node, rules: Iterable[str] = ()) -> bool:
    """Whether ``node`` matches the empty string, when exactly ``rules`` do."""

    def combine(part: Node, below: list[bool]) -> bool:
        match part:
            case Ref(name):
                return name in empty
            case Literal(text):
                return not text
            case Words(texts):
                return not texts[0]
            case CharSet() | TokenSet():
                return False
            case Alt():
                return any(below)
            case Repeat(_, minimum, _):
                return minimum == 0 or below[0]
            case Not():
                return not below[0]
            case Lexeme():
                return _inside(part).nullable
            case _:
                return all(below)

    if isinstance(node, Lexeme):
        return _inside(node).nullable
    empty = set(rules)
    return fold(node, combine, Lexeme)


def is_regular(node: Node, grammar: Grammar | None = None) -> bool:
    """Whether ``node`` is free of references and tokens; with ``grammar``, references to such rules count as well.

    A rule that takes part in recursion is not called regular even if its language is.
    """
    if grammar is None:
        return not any(isinstance(part, Ref | TokenSet) for part in walk(node))
    return _regular_with(node, regular_rules(grammar))


def regular_rules(grammar: Grammar) -> set[str]:
    """The rules that lead to no recursion and to no token."""
    found: set[str] = set()
    for group in dependency_order(grammar.rules):
        if len(group) == 1 and _regular_with(grammar.rules[group[0]], found):
            found.add(group[0])
    return found


def _regular_with(node: Node, regular: set[str]) -> bool:
    return all(part.name in regular if isinstance(part, Ref) else not isinstance(part, TokenSet) for part in walk(node))


def has_intersections(grammar: Grammar) -> bool:
    """Whether an :class:`And` or a :class:`Not` occurs in any rule."""
    return any(
        outline(body).intersects
        or any(_inside(leaf).intersects for leaf in outline(body).leaves if isinstance(leaf, Lexeme))
        for body in grammar.rules.values()
    )


class _Inside(NamedTuple):
    """What is asked about lexemes: they are large, few, and many of them the same in every grammar."""

    nodes: int
    nullable: bool
    productive: bool
    intersects: bool = False


def _combine_inside(part: Node, below: list[_Inside]) -> _Inside:
    nodes = 1 + sum([facts.nodes for facts in below])
    intersects = any(facts.intersects for facts in below)
    match part:
        case Literal(text):
            return _Inside(1, not text, True)
        case Words(texts):
            return _Inside(len(texts), not texts[0], True)
        case CharSet(ranges):
            return _Inside(1, False, bool(ranges))
        case Alt():
            nullable, productive = any(facts.nullable for facts in below), any(facts.productive for facts in below)
            return _Inside(nodes, nullable, productive, intersects)
        case Repeat(_, minimum, _):
            return _Inside(nodes, minimum == 0 or below[0].nullable, minimum == 0 or below[0].productive, intersects)
        case Not():
            return _Inside(nodes, not below[0].nullable, True, True)
    nullable, productive = all(facts.nullable for facts in below), all(facts.productive for facts in below)
    return _Inside(nodes, nullable, productive, intersects or isinstance(part, And))


_inside = SharedFold(_combine_inside)
