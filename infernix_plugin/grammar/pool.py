"""Hash-consed grammar nodes: equal structure is the same object.

Rewriting compares sub-trees all the time. Comparing frozen dataclasses walks both trees recursively, which is slow
for large grammars and overflows the stack for deep ones. A :class:`Pool` keeps one object per structure, so comparison
is ``is``, per-node facts are computed once, and no operation recurses.

The pool's constructors apply every identity that makes a node smaller or flatter and needs no look at the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Alt,
    And,
    CharSet,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    Words,
    charset,
    children,
    joined,
)
from infernix_plugin.grammar.prefix_tree import prefix_tree

HUGE = 1 << 40
"""Where :attr:`Facts.positions` saturates."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a node without looking into the rules it refers to."""

    nullable: bool
    """The empty string is in the language whatever the rules say.

    To let a reference count as nullable would be circular: in ``r ::= r?`` the option is what makes ``r`` nullable.
    """
    regular: bool
    """No :class:`Ref` and no :class:`TokenSet` inside."""
    plain: bool
    """No :class:`And`, :class:`Not` inside."""
    positions: int
    """Characters and references after every counted repetition is written out: the size of a position automaton."""
    depth: int
    """Height of the tree; a leaf has 1."""
    serial: int
    """Counts the nodes of the pool, in the order they were made."""
    references: frozenset[str]
    """The rules referred to. Iterate over it sorted, or the result depends on the hash seed of the process."""


class Pool:
    """One object per structure."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._facts: dict[int, Facts] = {}
        self.epsilon = self._intern(EPSILON)
        self.never = self._intern(NEVER)

    # -- membership ----------------------------------------------------------------------------------------------

    def _intern(self, node: Node) -> Node:
        """The pooled object equal to ``node``, whose children are pooled already."""
        match node:
            case Literal(text):
                key: tuple[object, ...] = (Literal, text)
            case CharSet(ranges):
                key = (CharSet, ranges)
            case TokenSet(ids, exclude):
                key = (TokenSet, ids, exclude)
            case Ref(name):
                key = (Ref, name)
            case Repeat(item, minimum, maximum):
                key = (Repeat, id(item), minimum, maximum)
            case _:
                key = (type(node), *map(id, children(node)))
        found = self._nodes.get(key)
        if found is None:
            budget.checkpoint()
            found = self._nodes[key] = node
            self._facts[id(node)] = self._describe(node)
        return found

    def facts(self, node: Node) -> Facts:
        """The facts of a pooled node."""
        return self._facts[id(node)]

    def _describe(self, node: Node) -> Facts:
        below = [self._facts[id(child)] for child in children(node)]
        regular = all(child.regular for child in below)
        plain = all(child.plain for child in below)
        positions = sum(child.positions for child in below)
        nullable = all(child.nullable for child in below)
        inner = [child.references for child in below if child.references]
        refers = inner[0] if len(inner) == 1 else frozenset[str]().union(*inner)
        match node:
            case Literal(text):
                nullable, positions = not text, len(text)
            case CharSet():
                nullable, positions = False, 1
            case TokenSet():
                nullable, positions, regular = False, 1, False
            case Ref(name):
                nullable, positions, regular, refers = False, 1, False, frozenset((name,))
            case Alt():
                nullable = any(child.nullable for child in below)
            case Repeat(_, minimum, maximum):
                nullable = nullable or minimum == 0
                positions *= max(minimum, 1) if maximum is None else maximum
            case And():
                plain = False
            case Not():
                nullable, plain = not nullable, False
        depth = 1 + max((child.depth for child in below), default=0)
        return Facts(nullable, regular, plain, min(positions, HUGE), depth, len(self._facts), refers)

    # -- constructors --------------------------------------------------------------------------------------------

    def literal(self, text: str) -> Node:
        """Exactly ``text``."""
        return self._intern(Literal(text))

    def ref(self, name: str) -> Node:
        """The language of a rule."""
        return self._intern(Ref(name))

    def charset(self, item: CharSet) -> Node:
        """One scalar value; a single one becomes a literal, which joins its neighbours."""
        if not item.ranges:
            return self.never
        if len(item.ranges) == 1 and item.ranges[0][0] == item.ranges[0][1]:
            return self.literal(chr(item.ranges[0][0]))
        return self._intern(item)

    def seq(self, *items: Node) -> Node:
        """Concatenation of pooled nodes: flat, no empty strings, literals and loops over one item joined."""
        flat: list[Node] = []
        for item in items:
            for part in item.items if isinstance(item, Seq) else (item,):
                if part is self.never:
                    return self.never
                if isinstance(part, Literal):
                    if not part.text:
                        continue
                    if flat and isinstance(flat[-1], Literal):
                        flat[-1] = self.literal(flat[-1].text + part.text)
                        continue
                if (
                    isinstance(part, Repeat)
                    and flat
                    and isinstance(last := flat[-1], Repeat)
                    and last.item is part.item
                ):
                    both = joined(last, part)
                    if both is not None:
                        flat[-1] = self.repeat(part.item, both.minimum, both.maximum)
                        continue
                flat.append(part)
        if not flat:
            return self.epsilon
        return flat[0] if len(flat) == 1 else self._intern(Seq(tuple(flat)))

    def alt(self, *options: Node) -> Node:
        """Union of pooled nodes: flat, no repeated options, single characters merged into one set.

        The empty string is never an option beside others: it becomes an optional repetition around the rest.
        """
        kept: dict[int, Node] = {}
        ranges: list[tuple[int, int]] = []
        letters_at: int | None = None
        empty = False
        pending = list(reversed(options))
        while pending:
            option = pending.pop()
            if isinstance(option, Alt):
                pending.extend(reversed(option.options))
            elif option is self.epsilon:
                empty = True
            elif isinstance(option, Repeat) and (option.minimum, option.maximum) == (0, 1):
                empty = True
                pending.append(option.item)
            elif isinstance(option, CharSet) or (isinstance(option, Literal) and len(option.text) == 1):
                if letters_at is None:
                    letters_at = len(kept)
                    kept[-1] = option
                ranges.extend(option.ranges if isinstance(option, CharSet) else [(ord(option.text), ord(option.text))])
            else:
                kept.setdefault(id(option), option)
        parts = list(kept.values())
        if letters_at is not None:
            parts[letters_at] = self.charset(charset(ranges))
        if not parts:
            return self.epsilon if empty else self.never
        union = parts[0] if len(parts) == 1 else self._intern(Alt(tuple(parts)))
        return self.repeat(union, 0, 1) if empty else union

    def repeat(self, item: Node, minimum: int = 0, maximum: int | None = None) -> Node:
        """Repetition of a pooled node: nested repetitions merged where that is exact, no loops over nothing."""
        if maximum == 0 or item is self.epsilon:
            return self.epsilon
        if item is self.never:
            return self.epsilon if minimum == 0 else self.never
        if self.facts(item).nullable:
            # Any missing rounds can be empty ones.
            if maximum == 1:
                return item
            minimum = 0
        if maximum is None and minimum <= 1:
            item = self._loop_core(item)
        if isinstance(item, Repeat) and _counts_merge(item, minimum, maximum):
            inner = item
            item, minimum = inner.item, inner.minimum * minimum
            maximum = None if inner.maximum is None or maximum is None else inner.maximum * maximum
        if (minimum, maximum) == (1, 1):
            return item
        if isinstance(item, Literal) and minimum == maximum and minimum * len(item.text) <= 32:
            return self.literal(item.text * minimum)
        return self._intern(Repeat(item, minimum, maximum))

    def optional(self, item: Node) -> Node:
        """``item`` or nothing."""
        return self.alt(self.epsilon, item)

    def intersection(self, *items: Node) -> Node:
        """What is in every one of the pooled ``items``: flat, sorted, no repeated items."""
        everything = self.complement(self.never)
        kept: dict[int, Node] = {}
        for item in items:
            for part in item.items if isinstance(item, And) else (item,):
                if part is self.never:
                    return self.never
                if part is not everything:
                    kept[id(part)] = part
        if not kept:
            return everything
        parts = sorted(kept.values(), key=lambda part: self.facts(part).serial)
        return parts[0] if len(parts) == 1 else self._intern(And(tuple(parts)))

    def complement(self, item: Node) -> Node:
        """Every string that is not in the pooled ``item``."""
        return item.item if isinstance(item, Not) else self._intern(Not(item))

    def _loop_core(self, item: Node) -> Node:
        """A node with the same ``(...)*`` and ``(...)+`` that does not match nothing (unless a rule does).

        The *star normal form* of Brüggemann-Klein: inside a loop an option's own optional and repeated rounds add
        nothing, and a sequence of parts that may all be empty is as good as a choice between them.
        """
        options: list[Node] = []
        pending = [item]
        while pending:
            node = pending.pop()
            if isinstance(node, Alt):
                pending.extend(reversed(node.options))
            elif isinstance(node, Repeat) and (node.minimum <= 1 or self.facts(node.item).nullable):
                pending.append(node.item)
            elif isinstance(node, Seq) and self.facts(node).nullable:
                pending.extend(reversed(node.items))
            elif node is not self.epsilon:
                options.append(node)
        return self.alt(*options)

    # -- whole trees ---------------------------------------------------------------------------------------------

    def rebuild(
        self,
        node: Node,
        replace: Callable[[Node], Node | None],
        keep: Callable[[Node], bool] = lambda node: False,
    ) -> Node:
        """Build ``node`` anew in this pool, bottom up and without recursion.

        ``replace`` sees every node whose children are pooled and may return a pooled node to stand for it. What
        satisfies ``keep`` must be pooled already and stays as it is.
        """
        done: dict[int, Node] = {}
        pending: list[tuple[Node, bool]] = [(node, False)]
        for current, ready in budget.drained(pending):
            if id(current) in done:
                continue
            if ready:
                made = self._combine(current, [done[id(child)] for child in children(current)])
            elif keep(current):
                done[id(current)] = current
                continue
            elif below := children(current):
                pending.append((current, True))
                for child in below:
                    if id(child) not in done:
                        pending.append((child, False))
                continue
            else:
                made = self.adopt(prefix_tree(current)) if isinstance(current, Words) else self._combine(current, [])
            done[id(current)] = replace(made) or made
        return done[id(node)]

    def _combine(self, node: Node, below: list[Node]) -> Node:
        match node:
            case Literal(text):
                return self.literal(text)
            case CharSet():
                return self.charset(node)
            case Seq():
                return self.seq(*below)
            case Alt():
                return self.alt(*below)
            case Repeat(_, minimum, maximum):
                return self.repeat(below[0], minimum, maximum)
            case And():
                return self.intersection(*below)
            case Not():
                return self.complement(below[0])
            case Lexeme():
                return self._intern(Lexeme(below[0]))
            case TokenSet((), False):
                return self.never
            case _:
                return self._intern(node)

    def adopt(self, node: Node) -> Node:
        """``node`` as a pooled node, simplified; :class:`Lexeme` marks are dropped, they do not change the language."""
        return self.rebuild(node, lambda made: made.item if isinstance(made, Lexeme) else None)

    def substitute(self, node: Node, bodies: Mapping[str, Node]) -> Node:
        """Put pooled bodies in the place of references in a pooled node; references inside the bodies stay as a rule.

        Where a choice shrinks to one body that is a reference itself, that one may be followed as well.
        """

        def replace(part: Node) -> Node | None:
            return bodies.get(part.name) if isinstance(part, Ref) else None

        return self.rebuild(node, replace, keep=lambda part: self.facts(part).references.isdisjoint(bodies))


def _counts_merge(inner: Repeat, minimum: int, maximum: int | None) -> bool:
    """Whether ``(x{a,b}){c,d}`` allows every count from ``a*c`` to ``b*d``, so that the two loops are one.

    Round counts k and k+1 give the runs [ka, kb] and [(k+1)a, (k+1)b]. The gap between them is largest for the
    smallest k; with b unbounded only k = 0 can leave one.
    """
    if minimum == maximum:
        return True
    if inner.maximum is None:
        return minimum > 0 or inner.minimum <= 1
    return (minimum + 1) * inner.minimum <= minimum * inner.maximum + 1
