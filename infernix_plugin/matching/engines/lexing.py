"""When may a longest-match lexer cut the output?

llguidance reads a terminal as long as *any* terminal that is allowed at that point can go on, and forgets the shorter
matches. That is exact if no terminal that is allowed together with a matched one continues it with a character that
may follow the match. JSON terminals have a reason for that, which this module checks on the grammar itself:

- no string, cut at its closing quote, is the beginning of a longer string; a punctuation mark is one character;
- a word (name, number, literal) is never followed by a word, a run of blanks never by blanks.

Every other terminal must be the only one where it is allowed, and keep the promise of
:class:`~infernix_plugin.grammar.ir.Lexeme`. A grammar for which this cannot be shown is not run by llguidance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache, reduce
from itertools import combinations
from operator import and_, or_
from typing import TypeVar

from infernix_plugin.grammar.analysis import dependency_order, nullable, references
from infernix_plugin.grammar.emit_lark import literal_pieces
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
    Seq,
    TokenSet,
    chars,
    charset,
    children,
    complement,
)
from infernix_plugin.matching.domain import TokenClass, TokenDomain

Value = TypeVar("Value")


class _Cut(IntEnum):
    """Where a reader of one JSON token stands."""

    START = 0
    IN_STRING = 1
    ESCAPED = 2
    STRING = 3
    WORD = 4
    BLANK = 5
    PUNCTUATION = 6
    NEITHER = 7


_QUOTE, _BACKSLASH = charset([(34, 34)]), charset([(92, 92)])
_BLANKS = charset([(9, 13), (32, 32)])
_WORDS = charset([(43, 43), (45, 46), (48, 57), (65, 90), (95, 95), (97, 122)])
_REST = complement(charset([*_QUOTE.ranges, *_BACKSLASH.ranges, *_BLANKS.ranges, *_WORDS.ranges]))
_STEPS: tuple[tuple[CharSet, tuple[_Cut, ...]], ...] = tuple(
    (letters, (start, in_string, _Cut.IN_STRING, _Cut.NEITHER, word, blank, _Cut.NEITHER, _Cut.NEITHER))
    for letters, start, in_string, word, blank in (
        (_QUOTE, _Cut.IN_STRING, _Cut.STRING, _Cut.NEITHER, _Cut.NEITHER),
        (_BACKSLASH, _Cut.PUNCTUATION, _Cut.ESCAPED, _Cut.NEITHER, _Cut.NEITHER),
        (_BLANKS, _Cut.BLANK, _Cut.IN_STRING, _Cut.NEITHER, _Cut.BLANK),
        (_WORDS, _Cut.WORD, _Cut.IN_STRING, _Cut.WORD, _Cut.NEITHER),
        (_REST, _Cut.PUNCTUATION, _Cut.IN_STRING, _Cut.NEITHER, _Cut.NEITHER),
    )
)

_Reach = tuple[int, ...]
"""For each state before a text, the states that may be after it, as a set of bits."""

_UNCHANGED: _Reach = tuple(1 << cut for cut in _Cut)
_ANYWHERE: _Reach = ((1 << len(_Cut)) - 1,) * len(_Cut)
_JSON_TOKENS = (_Cut.STRING, _Cut.WORD, _Cut.BLANK, _Cut.PUNCTUATION)


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A class of terminals that are treated alike."""

    kind: _Cut
    """The kind of JSON token, or NEITHER."""
    node: Node | None = None
    """The token set; a literal word, blank or mark; or the lexeme that is no JSON token. ``None``: all others."""

    @property
    def is_token_set(self) -> bool:
        return isinstance(self.node, TokenSet)

    @property
    def is_other(self) -> bool:
        return self.kind is _Cut.NEITHER and not self.is_token_set


def ambiguity(grammar: Grammar, domain: TokenDomain) -> str | None:
    """Why longest-match lexing may not be exact for ``grammar``, or ``None`` if it is. Every rule counts."""
    joints = _Joints(grammar)
    for allowed in joints.allowed_together():
        texts = [symbol for symbol in allowed if not symbol.is_token_set]
        if len(texts) > 1 and any(symbol.is_other for symbol in texts):
            return "text that is not one JSON token may stand where other text may stand"
        if texts and any(_names_text(symbol.node, domain) for symbol in allowed):
            return "text may stand where a single text token is named"
        sets = [symbol.node for symbol in allowed if isinstance(symbol.node, TokenSet)]
        if any(_share_a_token(left, right) for left, right in combinations(sets, 2)):
            return "one token may be named in two ways"
        for kind in (_Cut.WORD, _Cut.BLANK):
            same = [symbol for symbol in texts if symbol.kind is kind]
            cannot_grow = len(same) == 1 and same[0].node is not None
            if not cannot_grow and any(
                after.kind is kind or after.is_other for symbol in same for after in joints.followers(symbol)
            ):
                name = "a word" if kind is _Cut.WORD else "a run of blanks"
                return f"{name} may be followed by text that continues it"
    return None


def _names_text(node: Node | None, domain: TokenDomain) -> bool:
    return isinstance(node, TokenSet) and (
        node.exclude or any(domain.token_class(token) is TokenClass.TEXT for token in node.ids)
    )


def _share_a_token(left: TokenSet, right: TokenSet) -> bool:
    if left.exclude and right.exclude:
        return True
    if left.exclude:
        left, right = right, left
    return bool(set(left.ids) - set(right.ids) if right.exclude else set(left.ids) & set(right.ids))


@dataclass(frozen=True, slots=True)
class _Span:
    """The terminals a node's texts can begin and end with, and whether it matches the empty text."""

    first: frozenset[_Symbol] = frozenset()
    last: frozenset[_Symbol] = frozenset()
    empty: bool = False


_NOTHING = _Span()


class _Joints:
    """Which terminals can begin the output, and which can directly follow which."""

    def __init__(self, grammar: Grammar) -> None:
        self._rules = grammar.rules
        self._spans = dict.fromkeys(self._rules, _NOTHING)
        self._after: dict[_Symbol, set[_Symbol]] = {}
        for group in dependency_order(self._rules):
            while self._improve(group) and self._is_recursive(group):
                pass
        self._first = self._spans[grammar.root].first

    def followers(self, symbol: _Symbol) -> set[_Symbol]:
        """What can directly follow."""
        return self._after.get(symbol, set())

    def allowed_together(self) -> Iterator[frozenset[_Symbol]]:
        """Sets that cover every set of terminals that the lexer may have to tell apart.

        Terminals of one kind may match the same text; what follows any of them is then allowed together.
        """
        pending = [self._first]
        seen = {self._first}
        while pending:
            allowed = pending.pop()
            yield allowed
            alike: dict[tuple[_Cut, Node | None], set[_Symbol]] = {}
            for symbol in allowed:
                mark = symbol.node if symbol.kind in (_Cut.PUNCTUATION, _Cut.NEITHER) else None
                alike.setdefault((symbol.kind, mark), set()).update(self.followers(symbol))
            for following in map(frozenset, alike.values()):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)

    def _improve(self, group: list[str]) -> bool:
        """One round over mutually recursive rules; whether another is needed."""
        before = [self._spans[name] for name in group]
        for name in group:
            self._spans[name] = _fold_above(Lexeme, self._rules[name], self._combine)
        return before != [self._spans[name] for name in group]

    def _is_recursive(self, group: list[str]) -> bool:
        return len(group) > 1 or group[0] in references(self._rules[group[0]])

    def _combine(self, node: Node, below: list[_Span]) -> _Span:
        match node:
            case Literal(text):
                return self._sequence([_literal_span(piece) for piece in literal_pieces(text)])
            case Lexeme(item):
                return _lexeme_span(item)
            case TokenSet():
                symbols = frozenset({_Symbol(_Cut.NEITHER, node)})
                return _Span(symbols, symbols)
            case Ref(name):
                return self._spans[name]
            case Seq():
                return self._sequence(below)
            case Alt():
                return _Span(
                    frozenset().union(*(span.first for span in below)),
                    frozenset().union(*(span.last for span in below)),
                    any(span.empty for span in below),
                )
            case Repeat(_, minimum, maximum):
                span = below[0]
                if maximum is None or maximum > 1:
                    self._join(span.last, span.first)
                return replace(span, empty=span.empty or minimum == 0)
        raise ValueError(f"{type(node).__name__} outside a lexeme")

    def _sequence(self, spans: Iterable[_Span]) -> _Span:
        result = _Span(empty=True)
        for span in spans:
            self._join(result.last, span.first)
            result = _Span(
                result.first | span.first if result.empty else result.first,
                result.last | span.last if span.empty else span.last,
                result.empty and span.empty,
            )
        return result

    def _join(self, before: Iterable[_Symbol], after: frozenset[_Symbol]) -> None:
        for symbol in before:
            self._after.setdefault(symbol, set()).update(after)


@lru_cache(maxsize=1 << 12)
def _literal_span(piece: str) -> _Span:
    symbols = _symbols(Literal(piece))
    return _Span(symbols, symbols)


def _lexeme_span(item: Node) -> _Span:
    try:
        return _span_of_equal_lexemes(item)
    except RecursionError:  # too deep to be hashed
        return _span_of_equal_lexemes.__wrapped__(item)


@lru_cache(maxsize=1 << 9)
def _span_of_equal_lexemes(item: Node) -> _Span:
    symbols = _symbols(item)
    return _Span(symbols, symbols, nullable(item))


def _symbols(item: Node) -> frozenset[_Symbol]:
    """The kinds of JSON tokens among the members of ``item``, or ``item`` itself if it has other members."""
    ends = _fold_above(Not, item, _reach)[_Cut.START] & ~(1 << _Cut.START)
    kinds = [kind for kind in _JSON_TOKENS if ends >> kind & 1]
    if ends != sum(1 << kind for kind in kinds):
        return frozenset({_Symbol(_Cut.NEITHER, item)})
    return frozenset(
        _Symbol(kind, item if isinstance(item, Literal) and kind is not _Cut.STRING else None) for kind in kinds
    )


def _reach(node: Node, below: list[_Reach]) -> _Reach:
    match node:
        case Literal(text):
            return _chain(map(_letter_reach, text))
        case CharSet():
            return _character_reach(node)
        case Seq():
            return _chain(below)
        case Alt():
            return tuple(reduce(or_, (reach[cut] for reach in below), 0) for cut in _Cut)
        case And():
            return tuple(reduce(and_, (reach[cut] for reach in below)) for cut in _Cut)
        case Repeat(_, minimum, maximum):
            return _several(below[0], minimum, len(_Cut) if maximum is None else min(maximum, len(_Cut)))
        case Lexeme():
            return below[0]
    return _ANYWHERE  # a complement: nothing is known about its members


def _several(once: _Reach, minimum: int, rounds: int) -> _Reach:
    """Any number of repetitions: as many rounds as there are states find every end."""
    result = once if minimum else _UNCHANGED
    for _ in range(rounds):
        longer = tuple(a | b for a, b in zip(result, _chain([result, once]), strict=True))
        if longer == result:
            break
        result = longer
    return result


@lru_cache(maxsize=1 << 12)
def _letter_reach(letter: str) -> _Reach:
    return _character_reach(chars(letter))


@lru_cache(maxsize=1 << 12)
def _character_reach(letters: CharSet) -> _Reach:
    steps = [after for kind, after in _STEPS if _overlap(kind, letters)]
    return tuple(reduce(or_, (1 << after[cut] for after in steps), 0) for cut in _Cut)


def _chain(reaches: Iterable[_Reach]) -> _Reach:
    result = _UNCHANGED
    for reach in reaches:
        result = tuple(_image(reach, ends) for ends in result)
    return result


def _image(reach: _Reach, cuts: int) -> int:
    ends = 0
    while cuts:
        lowest = cuts & -cuts
        ends |= reach[lowest.bit_length() - 1]
        cuts ^= lowest
    return ends


def _fold_above(stop: type[Node], root: Node, combine: Callable[[Node, list[Value]], Value]) -> Value:
    """A value bottom up, without recursion; nodes of the type ``stop`` are leaves."""
    values: list[Value] = []
    pending: list[tuple[Node, bool]] = [(root, False)]
    while pending:
        node, ready = pending.pop()
        below = () if isinstance(node, stop) else children(node)
        if below and not ready:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(below))
            continue
        cut = len(values) - len(below)
        values[cut:] = [combine(node, values[cut:])]
    return values[0]


def _overlap(left: CharSet, right: CharSet) -> bool:
    return any(low <= high2 and low2 <= high for low, high in left.ranges for low2, high2 in right.ranges)
