r"""Write loops that are not regular as right-recursive rules.

``(o1 | o2)* rest`` becomes a rule ``t ::= rest | o1 t | o2 t``: the options are not cut into a rule of their own, and
what follows the loop is part of it, so fewer tokens run past the end of a rule. An option that begins with a small
rule gets that rule's options in its place. Regular loops stay: the emitter makes one automaton of each.
"""

from __future__ import annotations

from infernix_plugin.grammar.emit import fits_regex
from infernix_plugin.grammar.ir import Alt, Node, Ref, Repeat, Seq, walk
from infernix_plugin.grammar.normalize.draft import Draft

MAX_ROUNDS = 64
"""Most rounds of a counted loop that are written out."""
MAX_ROUND_POSITIONS = 512
"""Largest counted loop that is written out."""
MAX_OPENED_POSITIONS = 32
"""Largest rule that is opened at the beginning of an option."""


def lower_loops(draft: Draft) -> None:
    """Replace the loops of all rules that the emitter cannot put into one automaton."""
    work = _Loops(draft)
    for group in draft.order(draft.rules):
        for name in group:
            draft.rules[name] = work.lowered(name)


class _Loops:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._pool = draft.pool
        self._tails: dict[tuple[int, int], Node] = {}
        self._hint = draft.root

    def lowered(self, name: str) -> Node:
        """The body of a rule with its loops replaced."""
        self._hint = name
        return self._sequence(self._pool.rebuild(self._draft.rules[name], self._replace, self._is_one_automaton))

    def _replace(self, node: Node) -> Node | None:
        match node:
            case Seq():
                return self._sequence(node)
            case Alt(options):
                return self._pool.alt(*map(self._sequence, options))
            case Repeat(item, minimum, maximum):
                # The loop itself is replaced where its continuation is known.
                return self._pool.repeat(self._sequence(item), minimum, maximum)
        return None

    def _is_one_automaton(self, node: Node) -> bool:
        return fits_regex(node, self._pool.facts(node))

    def _is_loop(self, node: Node) -> bool:
        if not isinstance(node, Repeat) or (node.minimum, node.maximum) == (0, 1):
            return False
        if not self._pool.facts(node).plain or self._is_one_automaton(node):
            return False
        rounds = node.minimum if node.maximum is None else node.maximum
        item = self._pool.facts(node.item).positions
        return rounds <= 1 or (rounds <= MAX_ROUNDS and rounds * item <= MAX_ROUND_POSITIONS)

    def _sequence(self, node: Node) -> Node:
        """A sequence, or one part, with the loops replaced from right to left."""
        tail: list[Node] = []
        for item in reversed(self._draft.items(node)):
            if isinstance(item, Repeat) and self._is_loop(item):
                tail = [self._loop(item, self._pool.seq(*reversed(tail)))]
            else:
                tail.append(item)
        return self._pool.seq(*reversed(tail))

    def _loop(self, loop: Repeat, rest: Node) -> Node:
        """``loop`` and then ``rest``."""
        options = self._opened(loop.item)
        if loop.maximum is None:
            node = self._tail(loop.item, options, rest)
        else:
            rest = node = self._small(rest)
            for _ in range(loop.maximum - loop.minimum):
                node = self._small(self._pool.alt(rest, *(self._pool.seq(option, node) for option in options)))
        for _ in range(loop.minimum):
            node = self._pool.alt(*(self._pool.seq(option, self._small(node)) for option in options))
        return node

    def _tail(self, item: Node, options: list[Node], rest: Node) -> Node:
        """The rule for any number of rounds and then ``rest``; equal ones are one rule."""
        key = (id(item), id(rest))
        if key not in self._tails:
            name = self._draft.fresh(self._hint)
            self._tails[key] = tail = self._pool.ref(name)
            self._draft.rules[name] = self._pool.alt(rest, *(self._pool.seq(option, tail) for option in options))
        return self._tails[key]

    def _small(self, node: Node) -> Node:
        """Something that can be copied: ``node`` itself or a rule for it."""
        if self._pool.facts(node).positions <= 1:
            return node
        return self._pool.ref(self._draft.add(self._hint, node))

    def _opened(self, item: Node) -> list[Node]:
        """The options of a round; those that begin with a small rule are spread into that rule's options."""
        opened: list[Node] = []
        for option in self._draft.options(item):
            items = self._draft.items(option)
            first = self._draft.rules.get(items[0].name) if items and isinstance(items[0], Ref) else None
            if first is not None and self._is_small(first):
                opened.extend(self._pool.seq(inner, *items[1:]) for inner in self._draft.options(first))
            else:
                opened.append(option)
        return opened

    def _is_small(self, body: Node) -> bool:
        facts = self._pool.facts(body)
        return facts.positions <= MAX_OPENED_POSITIONS and not any(self._is_loop(part) for part in walk(body))
