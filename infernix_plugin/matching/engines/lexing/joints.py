"""Which terminals are allowed together, and which can directly follow which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from itertools import combinations, pairwise
from operator import or_
from typing import NamedTuple

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import components, leaves, nullable, references
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    Alt,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    Words,
    alt,
    chars,
    children,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema.derivatives import Intersection, Undecided
from infernix_plugin.matching.engines.lexing.json_tokens import (
    BLANK_LETTERS,
    QUOTE,
    WORD_LETTERS,
    Cut,
    Symbol,
    bits,
    literal_symbols,
    symbols_of,
)

_Zone = tuple[int, bool]
"""Where in the grammar a symbol stands: see :func:`_zones`, and whether that is in a value."""


class _Span(NamedTuple):
    """The symbols a node's texts can begin and end with, as sets of bits, and whether it matches the empty text."""

    first: int = 0
    last: int = 0
    empty: bool = False


_NOTHING = _Span()


def _any_of(spans: Iterable[_Span]) -> _Span:
    first = last = 0
    empty = False
    for span in spans:
        first |= span.first
        last |= span.last
        empty = empty or span.empty
    return _Span(first, last, empty)


_INNER = (Seq, Alt, Repeat)


class Joints:
    """Which symbols can begin the output, and which can directly follow which. A set of symbols is a set of bits.

    Attributes:
        token_sets: the symbols that are token sets.
        others: the symbols that are text, but not one JSON token.
    """

    def __init__(self, grammar: Grammar, values: frozenset[str] = frozenset()) -> None:
        """Read a grammar, in which ``values`` are rules that stand for JSON values."""
        self._rules = grammar.rules
        self._spans = dict.fromkeys(self._rules, _NOTHING)
        self._symbols: list[Symbol] = []
        zones = _zones(self._rules)
        self._zones = {name: (zones.get(name, 0), name in values) for name in self._rules}
        self._zone = 0, False
        self._numbers: dict[tuple[_Zone, Symbol], int] = {}
        self._of_kind = dict.fromkeys(Cut, 0)
        self._equal: dict[Symbol, int] = {}
        self._after: list[int] = []
        self._joined: set[tuple[int, int]] = set()
        self._known: dict[tuple[_Zone, int], _Span] = {}
        self._items: dict[int, Node] = {}
        self.token_sets = self.others = self._in_values = 0
        uses = {name: dict.fromkeys(references(body)) for name, body in self._rules.items()}
        for group in components(uses):
            recursive = len(group) > 1 or group[0] in uses[group[0]]
            while self._improve(group) and recursive:
                pass
        self._first = self._spans[grammar.root].first

    def token_sets_in(self, allowed: int) -> Iterator[TokenSet]:
        """The token sets among symbols."""
        for number in bits(allowed & self.token_sets):
            mark = self._symbols[number].mark
            assert isinstance(mark, TokenSet)
            yield mark

    def can_grow(self, allowed: int, kind: Cut) -> bool:
        """Whether an allowed text of a kind may be longer than a match of one, or be followed by what continues it."""
        same = allowed & self._of_kind[kind]
        if not same or (not same & (same - 1) and self._symbols[same.bit_length() - 1].mark is not None):
            return False
        followers = self._followers(same)
        return bool(followers & self._of_kind[kind]) or any(
            self._may_begin_with(number, kind) for number in bits(followers & self.others)
        )

    def may_be_in_a_value(self, allowed: int) -> bool:
        """Whether a JSON token outside of values may begin as a value that is allowed with it."""
        frame = allowed & ~self._in_values & ~self.others & ~self.token_sets
        return bool(allowed & self._in_values) and any(
            _may_begin_a_value(self._symbols[number]) for number in bits(frame)
        )

    def are_told_apart(self, texts: int) -> bool:
        """Whether it is proven that no text of one of the symbols is a text of another, or the beginning of a text.

        Two JSON tokens need no proof here: see :meth:`can_grow`. Nor does what nothing follows, if it goes on where
        another one could end.
        """
        others = texts & self.others
        if any(number not in self._items for number in bits(others)):
            return False
        if any(self._may_begin_alike(one, other) for one in bits(texts & ~others) for other in bits(others)):
            return False
        open_ended = tuple(self._items[number] for number in bits(others) if self._after[number])
        final = tuple(self._items[number] for number in bits(others) if not self._after[number])
        return _are_prefix_free(open_ended) and _begin_none_of(open_ended, final)

    def _may_begin_alike(self, token: int, other: int) -> bool:
        """Whether a JSON token and a text that is none may begin with the same character."""
        kind, mark = self._symbols[token]
        beginnings = {Cut.WORD: WORD_LETTERS, Cut.BLANK: BLANK_LETTERS, Cut.STRING: QUOTE}.get(kind)
        if isinstance(mark, str):
            beginnings = chars(mark[0])
        item = self._items[other]
        return beginnings is None or not isinstance(item, Literal) or ord(item.text[0]) in beginnings

    def _may_begin_with(self, number: int, kind: Cut) -> bool:
        item = self._items.get(number)
        continued = WORD_LETTERS if kind is Cut.WORD else BLANK_LETTERS
        return not (isinstance(item, Literal) and item.text and ord(item.text[0]) not in continued)

    def allowed_together(self) -> Iterator[int]:
        """Sets that cover every set of terminals that the lexer may have to tell apart.

        Terminals of one kind may match the same text; what follows any of them is then allowed together.
        """
        pending = [self._first]
        seen = {self._first}
        for allowed in budget.drained(pending):
            yield allowed
            alike = [allowed & self._of_kind[kind] for kind in (Cut.STRING, Cut.WORD, Cut.BLANK)]
            alike += (allowed & self._equal[self._symbols[number]] for number in bits(allowed & ~reduce(or_, alike)))
            for following in map(self._followers, alike):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)

    def _followers(self, symbols: int) -> int:
        """What can directly follow any of the symbols."""
        return reduce(or_, (self._after[number] for number in bits(symbols)), 0)

    def _improve(self, group: list[str]) -> bool:
        """One round over mutually recursive rules; whether another is needed."""
        before = [self._spans[name] for name in group]
        for name in group:
            self._zone = self._zones[name]
            self._spans[name] = self._span(self._rules[name])
        return before != [self._spans[name] for name in group]

    def _span(self, root: Node) -> _Span:
        """Without recursion: every node is listed after the one it is in, and done before it."""
        if not isinstance(root, _INNER):
            return self._leaf(root)
        spans, known, done = self._spans, self._known, dict[int, _Span]()
        nodes = [root]
        order: list[tuple[Node, tuple[Node, ...]]] = []
        for node in budget.watched(nodes):  # grows
            below = children(node)
            order.append((node, below))
            nodes.extend([child for child in below if isinstance(child, _INNER)])
        for inner, below in budget.watched(reversed(order)):
            done[id(inner)] = self._combine(
                inner,
                [
                    spans[child.name]
                    if isinstance(child, Ref)
                    else known.get((self._zone, id(child))) or done.get(id(child)) or self._leaf(child)
                    for child in below
                ],
            )
        return done[id(root)]

    def _combine(self, node: Node, below: list[_Span]) -> _Span:
        match node:
            case Seq():
                return self._sequence(below)
            case Alt():
                return _any_of(below)
            case Repeat(_, minimum, maximum):
                span = below[0]
                if maximum is None or maximum > 1:
                    self._join(span.last, span.first)
                return _Span(span.first, span.last, span.empty or minimum == 0)
        raise ValueError(f"{type(node).__name__} has no parts")

    def _leaf(self, node: Node) -> _Span:
        if isinstance(node, Ref):
            return self._spans[node.name]
        key = self._zone, id(node)
        span = self._known.get(key)
        if span is None:
            span = self._known[key] = self._new_leaf(node)
        return span

    def _new_leaf(self, node: Node) -> _Span:
        match node:
            case Literal(text):
                return self._text(text)
            case Words(texts):
                return _any_of(map(self._text, texts))
            case Lexeme(item):
                one = self._one(*symbols_of(item))
                if one.first & self.others:
                    self._items[one.first.bit_length() - 1] = item
                return _Span(one.first, one.last, nullable(node))
            case TokenSet():
                return self._one(Symbol(Cut.NEITHER, node))
        raise ValueError(f"{type(node).__name__} outside a lexeme")

    def _text(self, text: str) -> _Span:
        return self._sequence([self._one(symbol) for symbol in literal_symbols(text)])

    def _one(self, *symbols: Symbol) -> _Span:
        bits = 0
        for symbol in symbols:
            number = self._numbers.setdefault((self._zone, symbol), len(self._symbols))
            bits |= 1 << number
            if number == len(self._symbols):
                self._symbols.append(symbol)
                self._after.append(0)
                self._of_kind[symbol.kind] |= 1 << number
                if self._zone[1]:
                    self._in_values |= 1 << number
                self._equal[symbol] = self._equal.get(symbol, 0) | 1 << number
                if isinstance(symbol.mark, TokenSet):
                    self.token_sets |= 1 << number
                elif symbol.kind is Cut.NEITHER:
                    self.others |= 1 << number
        return _Span(bits, bits)

    def _sequence(self, spans: list[_Span]) -> _Span:
        first = last = 0
        empty = True
        for span in spans:
            self._join(last, span.first)
            if empty:
                first |= span.first
            if span.empty:
                last |= span.last
            else:
                last, empty = span.last, False
        return _Span(first, last, empty)

    def _join(self, before: int, after: int) -> None:
        if before and (before, after) not in self._joined:
            self._joined.add((before, after))
            for number in bits(before):
                self._after[number] |= after


def _may_begin_a_value(token: Symbol) -> bool:
    """Whether a JSON value may begin with a JSON token."""
    if token.kind is Cut.PUNCTUATION:
        return token.mark in (None, "{", "[")
    return token.kind is not Cut.BLANK


def _zones(rules: Mapping[str, Node]) -> dict[str, int]:
    """Rules that only one rule leads to, which begins with a mark: once in them, the output is nowhere else.

    A mark is a token, or a text that stands nowhere else and is no JSON token; for those it is proven wherever one is
    allowed that nothing else matches its text. Two terminals of different zones are therefore never allowed together,
    even if they are equal.
    """
    entries = _entries(rules)
    if not entries:
        return {}
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for used in references(body):
            users[used].add(name)
    found: list[set[str]] = []
    for entry in entries:
        budget.checkpoint()
        inside, pending = {entry}, [entry]
        while pending:
            below = set(references(rules[pending.pop()])) - inside
            inside |= below
            pending.extend(below)
        if all(users[name] <= inside for name in inside - {entry}):
            found.append(inside)
    zones: dict[str, int] = {}
    for number, inside in enumerate(sorted(found, key=len, reverse=True), 1):
        zones.update(dict.fromkeys(inside, number))  # a zone inside another is a zone of its own
    return zones


def _entries(rules: Mapping[str, Node]) -> list[str]:
    """The rules that begin with a mark."""
    marked: dict[str, Node] = {}
    for name, body in rules.items():
        first = body.items[0] if isinstance(body, Seq) else body
        if isinstance(first, TokenSet) and not first.exclude:
            marked[name] = first
        elif isinstance(first, Lexeme) and isinstance(first.item, Literal):
            (symbol, *_) = symbols_of(first.item)
            if symbol.kind is Cut.NEITHER:
                marked[name] = first
    if not marked:
        return []
    marks = set(marked.values())
    texts = Counter(leaf for body in rules.values() for leaf in leaves(body) if leaf in marks)
    return [name for name, first in marked.items() if isinstance(first, TokenSet) or texts[first] == 1]


@lru_cache(maxsize=256)
def _are_prefix_free(languages: tuple[Node, ...]) -> bool:
    texts = sorted(item.text for item in languages if isinstance(item, Literal))
    if len(texts) == len(languages):
        return not any(longer.startswith(shorter) for shorter, longer in pairwise(texts))
    union = alt(*languages)
    try:
        return Intersection([seq(union, repeat(ANY_CHAR, 1)), union]).is_empty() and all(
            Intersection(pair).is_empty() for pair in combinations(languages, 2)
        )
    except Undecided:
        return False


@lru_cache(maxsize=256)
def _begin_none_of(languages: tuple[Node, ...], others: tuple[Node, ...]) -> bool:
    """Whether it is proven that no text of the languages is the beginning, or all, of a text of the others."""
    if not languages or not others:
        return True
    try:
        return Intersection([seq(alt(*languages), repeat(ANY_CHAR)), alt(*others)]).is_empty()
    except Undecided:
        return False
