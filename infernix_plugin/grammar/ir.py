"""The grammar tree that every front end produces and every engine emitter consumes.

A grammar describes a set of strings of Unicode *scalar values*; engines match the UTF-8 bytes of those strings.
Nodes are immutable values with structural equality, so equal sub-languages can be shared. The smart constructors
(:func:`seq`, :func:`alt`, ...) apply the free identities; :mod:`infernix_plugin.grammar.normalize` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.places import UniqueItems

MAX_SCALAR = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly ``text``; the empty text is the empty string (epsilon)."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """One of finitely many texts: at least two, sorted, all different. Build it with :func:`words`.

    A leaf, so that a list of thousands is no tree of thousands of nodes that every step walks through.
    """

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CharSet:
    """One scalar value out of inclusive ranges, which are sorted, disjoint, not adjacent and free of surrogates.

    Build it with :func:`charset`. No ranges at all is the empty language.
    """

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, scalar: int) -> bool:
        return any(low <= scalar <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class TokenSet:
    """One token by id. With ``exclude``, any token but these (stop tokens are never included either way)."""

    ids: tuple[int, ...]
    exclude: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    """The items one after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of the options; no options at all is the empty language."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``item`` from ``minimum`` to ``maximum`` times; ``maximum`` ``None`` is without bound."""

    item: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """The language of the named rule."""

    name: str


@dataclass(frozen=True, slots=True)
class And:
    """Strings that are in every item. Items must be regular: no :class:`Ref` and no :class:`TokenSet` inside."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Strings of scalar values that are not in ``item``, which must be regular."""

    item: Node


@dataclass(frozen=True, slots=True)
class Lexeme:
    """The language of ``item``, with a promise to the engine that it may be matched as one terminal.

    ``item`` is regular and *self-delimiting where it stands*: if the text before and including a member of the
    language can be continued by the grammar, then no longer member of the language starts there as well. So a
    longest-match lexer and exact matching agree. JSON strings (they end in their quote), JSON numbers (a digit
    never follows them) and whitespace runs between tokens keep the promise; front ends must not use it elsewhere.
    """

    item: Node


Node = Literal | Words | CharSet | TokenSet | Seq | Alt | Repeat | Ref | And | Not | Lexeme

EPSILON = Literal("")
NEVER = Alt(())


@dataclass(frozen=True, slots=True)
class Remark:
    """Something odd about a constraint that is enforced all the same, most likely a mistake of its author."""

    message: str
    location: str
    """``line:column``, both from 1."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Named rules and the name of the entry rule. Every :class:`Ref` names a rule of the mapping.

    With ``unique``, the language is only those of the strings in which no array repeats an item that must not.
    """

    rules: Mapping[str, Node]
    root: str = "root"
    unique: UniqueItems | None = None
    remarks: tuple[Remark, ...] = ()
    """What the reader noticed; set on the grammar that a reader returns only."""

    @property
    def start(self) -> Node:
        """The body of the entry rule."""
        return self.rules[self.root]


def words(texts: Iterable[str]) -> Node:
    """Exactly one of ``texts``, whose order and repetitions carry no meaning; none at all is the empty language."""
    distinct = sorted(set(texts))
    if len(distinct) < 2:
        return Literal(distinct[0]) if distinct else NEVER
    return Words(tuple(distinct))


def charset(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """Normalise inclusive ranges: sort, merge, clip to scalar values and cut the surrogates out."""
    clipped: list[tuple[int, int]] = []
    for low, high in ranges:
        low, high = max(low, 0), min(high, MAX_SCALAR)
        if low < _SURROGATES[0]:
            clipped.append((low, min(high, _SURROGATES[0] - 1)))
        if high > _SURROGATES[1]:
            clipped.append((max(low, _SURROGATES[1] + 1), high))
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for pair in clipped if pair[0] <= pair[1]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return CharSet(tuple(merged))


def chars(text: str) -> CharSet:
    """The set of the characters of ``text``."""
    return charset((ord(char), ord(char)) for char in text)


def complement(item: CharSet) -> CharSet:
    """Every scalar value that is not in ``item``."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in item.ranges:
        gaps.append((start, low - 1))
        start = high + 1
    gaps.append((start, MAX_SCALAR))
    return charset(gaps)


ANY_CHAR = charset([(0, MAX_SCALAR)])


def seq(*items: Node) -> Node:
    """Concatenate: nested sequences are flattened, adjacent literals joined, the empty string dropped."""
    flat: list[Node] = []
    for item in items:
        for part in item.items if isinstance(item, Seq) else (item,):
            if isinstance(part, Alt) and not part.options:
                return NEVER
            if isinstance(part, Literal):
                if not part.text:
                    continue
                if flat and isinstance(flat[-1], Literal):
                    flat[-1] = Literal(flat[-1].text + part.text)
                    continue
            flat.append(part)
    if not flat:
        return EPSILON
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*options: Node) -> Node:
    """Unite: nested alternatives are flattened, repeated options and the empty language dropped."""
    flat: dict[Node, None] = {}
    for option in options:
        for part in option.options if isinstance(option, Alt) else (option,):
            flat.setdefault(part)
    flat.pop(CharSet(()), None)
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def repeat(item: Node, minimum: int = 0, maximum: int | None = None) -> Node:
    """Repeat, with the trivial counts resolved."""
    if maximum is not None and maximum < minimum:
        raise ValueError(f"repetition {{{minimum},{maximum}}} is empty")
    if maximum == 0 or item == EPSILON:
        return EPSILON
    if item == NEVER:
        return EPSILON if minimum == 0 else NEVER
    return item if (minimum, maximum) == (1, 1) else Repeat(item, minimum, maximum)


MAX_JOINED_COUNT = 1 << 16
"""Largest count that joining neighbours may write; engines keep counts in 32 bits."""


def joined(left: Repeat, right: Repeat) -> Repeat | None:
    """``x{a,b} x{c,d}`` as ``x{a+c,b+d}``, for two repetitions of one item; ``None`` if that count is too large.

    Written out, a run of n optional items has n * n / 2 ways from one to another; as a count it has n.
    """
    maximum = None if left.maximum is None or right.maximum is None else left.maximum + right.maximum
    minimum = left.minimum + right.minimum
    return None if max(minimum, maximum or 0) > MAX_JOINED_COUNT else Repeat(left.item, minimum, maximum)


def optional(item: Node) -> Node:
    """``item`` or nothing."""
    return repeat(item, 0, 1)


_CHILDREN: dict[type[Node], Callable[[Any], tuple[Node, ...]]] = {
    **dict.fromkeys((Literal, Words, CharSet, TokenSet, Ref), lambda _: ()),
    **dict.fromkeys((Seq, And), attrgetter("items")),
    **dict.fromkeys((Repeat, Not, Lexeme), lambda node: (node.item,)),
    Alt: attrgetter("options"),
}


def children(node: Node) -> tuple[Node, ...]:
    """The direct sub-nodes of ``node``."""
    return _CHILDREN[type(node)](node)


def rebuilt(node: Node, below: list[Node]) -> Node:
    """``node`` over other sub-nodes, in the order of :func:`children`; itself if they are its own or there are none."""
    if all(old is new for old, new in zip(children(node), below, strict=False)):
        return node
    match node:
        case Seq():
            return Seq(tuple(below))
        case Alt():
            return Alt(tuple(below))
        case And():
            return And(tuple(below))
        case Repeat(_, minimum, maximum):
            return Repeat(below[0], minimum, maximum)
        case Not():
            return Not(below[0])
        case _:
            return Lexeme(below[0])


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree below and including ``node``, without recursion and not through :class:`Ref`."""
    pending = [node]
    for current in budget.drained(pending):
        yield current
        pending.extend(children(current))
