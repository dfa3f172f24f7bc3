"""Builds expression trees from left to right, without recursion and within the limits of the options.

The textual front ends differ in their tokens, not in what groups, alternatives and repetitions mean; they drive this
one builder, so nesting, counts and node numbers are bounded in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import EPSILON, NEVER, Alt, CharSet, Literal, Node, Repeat, Seq, joined, repeat
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.source import Source

_COMPARED_PARTS = 32
"""Most parts of a repeated item that is compared with its neighbour."""


def sequence(items: list[Node]) -> Node:
    """``items`` in a row, literals and repetitions of one thing joined; groups stay, so the cost is linear."""
    parts: list[Node] = []
    run: list[str] = []
    for item in items:
        if item == NEVER:
            return NEVER
        if isinstance(item, Literal):
            run.append(item.text)
            continue
        if run:
            parts.append(Literal("".join(run)))
            run = []
        if isinstance(item, Repeat) and parts and (both := _one_repetition(parts[-1], item)) is not None:
            parts[-1] = both
        else:
            parts.append(item)
    if run:
        parts.append(Literal("".join(run)))
    kept = [item for item in parts if item != EPSILON]
    if not kept:
        return EPSILON
    return kept[0] if len(kept) == 1 else Seq(tuple(kept))


def _one_repetition(before: Node, item: Repeat) -> Node | None:
    """Two repetitions of one flat item as one."""
    if not isinstance(before, Repeat) or not _is_flat(item.item):
        return None
    return joined(before, item) if before.item == item.item else None


def _is_flat(node: Node) -> bool:
    """Whether ``node`` is cheap to compare, which recurses: a set of characters, or a few leaves."""
    parts = node.items if isinstance(node, Seq) else node.options if isinstance(node, Alt) else (node,)
    return len(parts) <= _COMPARED_PARTS and all(isinstance(part, CharSet | Literal) for part in parts)


def choice_of(options: list[Node]) -> Node:
    """Any of ``options``; unlike :func:`infernix_plugin.grammar.ir.alt` it neither flattens nor compares them."""
    kept = [option for option in options if option != NEVER]
    return kept[0] if len(kept) == 1 else Alt(tuple(kept))


@dataclass(slots=True)
class _Group:
    opened_at: int
    tag: str
    options: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    height: int = 0
    copies: int = 1
    last_height: int = 0
    last_copies: int = 1
    last_is_counted: bool = False


class Expression:
    """One expression under construction.

    ``height`` of an item is how deep groups and stacked counts nest inside it; ``copies`` is how often its innermost
    item stands in it when every nested count is written out. Both are bounded, by ``max_nesting`` and
    ``max_repetition``; the number of nodes is bounded by ``max_nodes``.
    """

    def __init__(self, source: Source, options: GrammarOptions) -> None:
        self._source = source
        self._options = options
        self._groups = [_Group(0, "")]
        self._nodes = 0

    @property
    def depth(self) -> int:
        """How many groups are open."""
        return len(self._groups) - 1

    @property
    def opened_at(self) -> int:
        """Where the innermost open group starts."""
        return self._groups[-1].opened_at

    @property
    def tag(self) -> str:
        """What the innermost open group was opened with."""
        return self._groups[-1].tag

    @property
    def nodes(self) -> int:
        """How many nodes were added so far."""
        return self._nodes

    @property
    def at_start(self) -> bool:
        """Whether the current alternative is still empty."""
        return not self._groups[-1].items

    def add(self, node: Node, offset: int) -> None:
        """Append ``node`` to the current alternative."""
        self._count(offset)
        group = self._groups[-1]
        group.items.append(node)
        group.last_height, group.last_copies, group.last_is_counted = 0, 1, False

    def open(self, offset: int, tag: str = "") -> None:
        """Open a group."""
        if self.depth >= self._options.max_nesting:
            raise self._too_deep(offset)
        self._count(offset)
        self._groups.append(_Group(offset, tag))

    def alternative(self) -> None:
        """End the current alternative and begin the next."""
        group = self._groups[-1]
        self._count(group.opened_at)
        group.options.append(sequence(group.items))
        group.items = []

    def close(self, offset: int) -> Node:
        """Close the innermost group, which must exist, and return it; the caller adds it with :meth:`add_group`."""
        self.alternative()
        group = self._groups.pop()
        outer = self._groups[-1]
        outer.last_height, outer.last_copies, outer.last_is_counted = group.height + 1, group.copies, False
        if outer.last_height > self._options.max_nesting:
            raise self._too_deep(offset)
        return choice_of(group.options)

    def add_group(self, node: Node) -> None:
        """Append the group that was closed last, or what the front end made of it."""
        group = self._groups[-1]
        group.items.append(node)
        self._grow(group)

    def repeat(self, minimum: int, maximum: int | None, offset: int) -> None:
        """Repeat the last item of the current alternative, which must not be empty."""
        self._count(offset)
        limit = self._options.max_repetition
        largest = minimum if maximum is None else maximum
        if largest > limit:
            raise self._source.too_large(f"a repetition of {largest}; max_repetition is {limit}", offset)
        if maximum is not None and maximum < minimum:
            raise self._source.error(
                f"the repetition {{{minimum},{maximum}}} ends before it starts", offset, "put the smaller count first"
            )
        group = self._groups[-1]
        item = group.items[-1]
        if isinstance(item, Repeat) and _is_flag(item.minimum, item.maximum) and _is_flag(minimum, maximum):
            bound = None if item.maximum is None or maximum is None else 1
            group.items[-1] = repeat(item.item, item.minimum * minimum, bound)
            return
        group.last_height += group.last_is_counted
        group.last_is_counted = True
        group.last_copies *= max(largest, 1)
        if group.last_height > self._options.max_nesting:
            raise self._too_deep(offset)
        if group.last_copies > limit:
            raise self._source.too_large(
                f"nested repetitions of {group.last_copies} together; max_repetition is {limit}", offset
            )
        group.items[-1] = repeat(item, minimum, maximum)
        self._grow(group)

    def alternatives(self) -> list[Node]:
        """The alternatives of the whole expression; no group may be open."""
        self.alternative()
        return self._groups[-1].options

    def _grow(self, group: _Group) -> None:
        group.height = max(group.height, group.last_height)
        group.copies = max(group.copies, group.last_copies)

    def _count(self, offset: int) -> None:
        self._nodes += 1
        budget.checkpoint()
        if self._nodes > self._options.max_nodes:
            raise self._source.too_large(f"more than {self._options.max_nodes} nodes (max_nodes)", offset)

    def _too_deep(self, offset: int) -> Exception:
        limit = self._options.max_nesting
        return self._source.too_large(f"groups nested deeper than {limit} (max_nesting)", offset)


def _is_flag(minimum: int, maximum: int | None) -> bool:
    """Whether a repetition is ``?``, ``*`` or ``+``: stacks of those are again one of them."""
    return minimum <= 1 and maximum in (1, None)
