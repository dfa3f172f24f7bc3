"""When may a longest-match lexer cut the output?

llguidance reads a terminal as long as *any* terminal that is allowed at that point can go on, and forgets the shorter
matches. That is exact if no terminal that is allowed together with a matched one continues it with a character that
may follow the match. JSON terminals have a reason for that, which this module checks on the grammar itself:

- no string, cut at its closing quote, is the beginning of a longer string; a punctuation mark is one character;
- a word (name, number, literal) is never followed by a word, a run of blanks never by blanks.

What stands behind a single token or a text of its own, and nowhere else, is looked at apart: tool calls, for example.

Every other terminal must keep the promise of :class:`~infernix_plugin.grammar.ir.Lexeme` and be the only one where it
is allowed, or one of several of which it is proven that no text of one is a text of another or its beginning. A
grammar for which this cannot be shown is not run by llguidance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache, reduce
from itertools import combinations, pairwise
from operator import and_, or_
from typing import NamedTuple

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import SharedFold, components, leaves, nullable, references
from infernix_plugin.grammar.emit_lark import is_piece, literal_pieces, terminal
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
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
    Words,
    alt,
    chars,
    charset,
    children,
    complement,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema.derivatives import Intersection, Undecided
from infernix_plugin.matching.domain import TokenClass, TokenDomain


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
_NOWHERE: _Reach = (0,) * len(_Cut)
_JSON_TOKENS = (_Cut.STRING, _Cut.WORD, _Cut.BLANK, _Cut.PUNCTUATION)


class _Symbol(NamedTuple):
    """A class of terminals that are treated alike."""

    kind: _Cut
    """The kind of JSON token, or NEITHER."""
    mark: TokenSet | str | None = None
    """The token set; a literal word, run of blanks or mark; or the terminal that is no JSON token. Else ``None``."""


def ambiguity(grammar: Grammar, domain: TokenDomain) -> str | None:
    """Why longest-match lexing may not be exact for ``grammar``, or ``None`` if it is. Every rule counts."""
    if isinstance(grammar.start, Lexeme):
        return None  # one terminal, and nothing stands beside it or after it
    return None if _only_json_tokens(grammar.rules) else _ambiguity_of_others(grammar, domain)


def _ambiguity_of_others(grammar: Grammar, domain: TokenDomain) -> str | None:
    joints = _Joints(grammar)
    for allowed in joints.allowed_together():
        texts = allowed & ~joints.token_sets
        if texts & joints.others and texts & (texts - 1) and not joints.are_told_apart(texts):
            return "text that is not one JSON token may stand where other text may stand"
        sets = list(joints.token_sets_in(allowed))
        if texts and any(_names_text(tokens, domain) for tokens in sets):
            return "text may stand where a single text token is named"
        if any(_share_a_token(left, right) for left, right in combinations(sets, 2)):
            return "one token may be named in two ways"
        if joints.can_grow(texts, _Cut.WORD):
            return "a word may be followed by text that continues it"
        if joints.can_grow(texts, _Cut.BLANK):
            return "a run of blanks may be followed by text that continues it"
    return None


def _names_text(tokens: TokenSet, domain: TokenDomain) -> bool:
    return tokens.exclude or any(domain.token_class(token) is TokenClass.TEXT for token in tokens.ids)


def _share_a_token(left: TokenSet, right: TokenSet) -> bool:
    if left.exclude and right.exclude:
        return True
    if left.exclude:
        left, right = right, left
    return bool(set(left.ids) - set(right.ids) if right.exclude else set(left.ids) & set(right.ids))


# -- what is enough for JSON: nothing but its tokens ---------------------------------------------------------------


_FIRST, _LAST, _EMPTY = 0, 8, 16
"""In what number of bits the kinds begin that a text may begin with, and end with, and where it says that none is
needed: all of a node in one integer, as this is asked about every node of every schema."""
_FACE = 0xFF
_NO_TOKEN = 1 << _EMPTY
_GROWING = (1 << _Cut.WORD) | (1 << _Cut.BLANK)


class _NotOnlyTokensError(Exception):
    """Something is no JSON token, or a word can follow a word, or blanks can follow blanks."""


def _only_json_tokens(rules: Mapping[str, Node]) -> bool:
    """Whether all terminals are JSON tokens and neither a word can follow a word nor a run of blanks another.

    If so, no more needs to be known; if not, longest-match lexing may be exact for another reason.
    """
    faces = dict.fromkeys(rules, 0)
    uses = {name: references(body) for name, body in rules.items()}
    try:
        for group in components(uses):
            recursive = len(group) > 1 or group[0] in uses[group[0]]
            changed = True
            while changed:
                budget.checkpoint()
                before = [faces[name] for name in group]
                for name in group:
                    faces[name] = _face(rules[name], faces)
                changed = recursive and before != [faces[name] for name in group]
    except (_NotOnlyTokensError, RecursionError):
        return False
    return True


def _face(node: Node, faces: Mapping[str, int]) -> int:
    """The kinds of tokens that the texts of a node begin with and end with."""
    match node:
        case Ref(name):
            return faces[name]
        case Literal(text):
            return _literal_face(text)
        case Words(texts):
            return reduce(or_, map(_literal_face, texts))
        case Lexeme():
            return _lexeme_faces(node)
        case Seq(items):
            found = _NO_TOKEN
            for item in budget.watched(items):
                found = _joined(found, _face(item, faces))
            return found
        case Alt(options):
            found = 0
            for option in budget.watched(options):
                found |= _face(option, faces)
            return found
        case Repeat(item, minimum, maximum):
            found = _face(item, faces)
            if maximum is None or maximum > 1:
                _joined(found, found)
            return found if minimum else found | _NO_TOKEN
    raise _NotOnlyTokensError


def _joined(before: int, after: int) -> int:
    """The face of one text behind another."""
    if (before >> _LAST) & after & _GROWING:
        raise _NotOnlyTokensError
    first = before & _FACE | (after & _FACE if before & _NO_TOKEN else 0)
    last = after & _FACE << _LAST | (before & _FACE << _LAST if after & _NO_TOKEN else 0)
    return first | last | before & after & _NO_TOKEN


@lru_cache(maxsize=1 << 12)
def _literal_face(text: str) -> int:
    return reduce(_joined, (_one_token(1 << _piece_symbol(piece).kind) for piece in literal_pieces(text)), _NO_TOKEN)


def _lexeme_face(node: Node, below: list[int]) -> int:
    """Called with the lexeme alone, which is the leaf of its own fold."""
    assert isinstance(node, Lexeme)
    ends = _ends(node.item)
    kinds = ends & ~(1 << _Cut.START)
    return _one_token(kinds) | (_NO_TOKEN if ends != kinds else 0)


def _one_token(kinds: int) -> int:
    if kinds >> _Cut.NEITHER & 1 or kinds & (1 << _Cut.IN_STRING | 1 << _Cut.ESCAPED):
        raise _NotOnlyTokensError
    return kinds << _FIRST | kinds << _LAST


# -- what is looked at where that is not enough ---------------------------------------------------------------------


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


class _Joints:
    """Which symbols can begin the output, and which can directly follow which. A set of symbols is a set of bits.

    Attributes:
        token_sets: the symbols that are token sets.
        others: the symbols that are text, but not one JSON token.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._rules = grammar.rules
        self._spans = dict.fromkeys(self._rules, _NOTHING)
        self._symbols: list[_Symbol] = []
        self._zones = _zones(self._rules)
        self._zone = 0
        self._numbers: dict[tuple[int, _Symbol], int] = {}
        self._of_kind = dict.fromkeys(_Cut, 0)
        self._after: list[int] = []
        self._joined: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], _Span] = {}
        self._items: dict[int, Node] = {}
        self.token_sets = self.others = 0
        uses = {name: dict.fromkeys(references(body)) for name, body in self._rules.items()}
        for group in components(uses):
            recursive = len(group) > 1 or group[0] in uses[group[0]]
            while self._improve(group) and recursive:
                pass
        self._first = self._spans[grammar.root].first

    def token_sets_in(self, allowed: int) -> Iterator[TokenSet]:
        """The token sets among symbols."""
        for number in _bits(allowed & self.token_sets):
            mark = self._symbols[number].mark
            assert isinstance(mark, TokenSet)
            yield mark

    def can_grow(self, allowed: int, kind: _Cut) -> bool:
        """Whether an allowed text of a kind may be longer than a match of one, or be followed by what continues it."""
        same = allowed & self._of_kind[kind]
        if not same or (not same & (same - 1) and self._symbols[same.bit_length() - 1].mark is not None):
            return False
        followers = self._followers(same)
        return bool(followers & self._of_kind[kind]) or any(
            self._may_begin_with(number, kind) for number in _bits(followers & self.others)
        )

    def are_told_apart(self, texts: int) -> bool:
        """Whether it is proven that no text of one of the symbols is a text of another, or the beginning of a text.

        Two JSON tokens need no proof here: see :meth:`can_grow`.
        """
        others = texts & self.others
        if any(number not in self._items for number in _bits(others)):
            return False
        if any(self._may_begin_alike(one, other) for one in _bits(texts & ~others) for other in _bits(others)):
            return False
        return _are_prefix_free(tuple(self._items[number] for number in _bits(others)))

    def _may_begin_alike(self, token: int, other: int) -> bool:
        """Whether a JSON token and a text that is none may begin with the same character."""
        kind, mark = self._symbols[token]
        beginnings = {_Cut.WORD: _WORDS, _Cut.BLANK: _BLANKS, _Cut.STRING: _QUOTE}.get(kind)
        if isinstance(mark, str):
            beginnings = chars(mark[0])
        item = self._items[other]
        return beginnings is None or not isinstance(item, Literal) or ord(item.text[0]) in beginnings

    def _may_begin_with(self, number: int, kind: _Cut) -> bool:
        item = self._items.get(number)
        continued = _WORDS if kind is _Cut.WORD else _BLANKS
        return not (isinstance(item, Literal) and item.text and ord(item.text[0]) not in continued)

    def allowed_together(self) -> Iterator[int]:
        """Sets that cover every set of terminals that the lexer may have to tell apart.

        Terminals of one kind may match the same text; what follows any of them is then allowed together.
        """
        pending = [self._first]
        seen = {self._first}
        for allowed in budget.drained(pending):
            yield allowed
            alike = [allowed & self._of_kind[kind] for kind in (_Cut.STRING, _Cut.WORD, _Cut.BLANK)]
            alike += (1 << number for number in _bits(allowed & ~reduce(or_, alike)))
            for following in map(self._followers, alike):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)

    def _followers(self, symbols: int) -> int:
        """What can directly follow any of the symbols."""
        return reduce(or_, (self._after[number] for number in _bits(symbols)), 0)

    def _improve(self, group: list[str]) -> bool:
        """One round over mutually recursive rules; whether another is needed."""
        before = [self._spans[name] for name in group]
        for name in group:
            self._zone = self._zones.get(name, 0)
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
                one = self._one(*_symbols(item))
                if one.first & self.others:
                    self._items[one.first.bit_length() - 1] = item
                return _Span(one.first, one.last, nullable(node))
            case TokenSet():
                return self._one(_Symbol(_Cut.NEITHER, node))
        raise ValueError(f"{type(node).__name__} outside a lexeme")

    def _text(self, text: str) -> _Span:
        return self._sequence([self._one(symbol) for symbol in _literal_symbols(text)])

    def _one(self, *symbols: _Symbol) -> _Span:
        bits = 0
        for symbol in symbols:
            number = self._numbers.setdefault((self._zone, symbol), len(self._symbols))
            bits |= 1 << number
            if number == len(self._symbols):
                self._symbols.append(symbol)
                self._after.append(0)
                self._of_kind[symbol.kind] |= 1 << number
                if isinstance(symbol.mark, TokenSet):
                    self.token_sets |= 1 << number
                elif symbol.kind is _Cut.NEITHER:
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
            for number in _bits(before):
                self._after[number] |= after


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
            (symbol, *_) = _symbols(first.item)
            if symbol.kind is _Cut.NEITHER:
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


def _bits(numbers: int) -> Iterator[int]:
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


@lru_cache(maxsize=1 << 12)
def _literal_symbols(text: str) -> tuple[_Symbol, ...]:
    return tuple(map(_piece_symbol, literal_pieces(text)))


def _piece_symbol(piece: str) -> _Symbol:
    """The kind of a piece of a literal, which is a JSON token unless it is a quote without an end."""
    if piece[0] == '"':
        return _Symbol(_Cut.STRING) if len(piece) > 1 else _Symbol(_Cut.NEITHER, terminal(Literal(piece)))
    if ord(piece[0]) in _WORDS:
        return _Symbol(_Cut.WORD, piece)
    return _Symbol(_Cut.BLANK if ord(piece[0]) in _BLANKS else _Cut.PUNCTUATION, piece)


def _ends(item: Node) -> int:
    """Where a reader may stand after a text of ``item``."""
    if not isinstance(item, Words):
        return _reaches(item)[_Cut.START]
    return reduce(or_, (1 << kind for kind in {_kind(text) for text in budget.watched(item.texts)}))


def _kind(text: str) -> _Cut:
    """The kind of JSON token that a text is, START for none, or NEITHER."""
    if not text:
        return _Cut.START
    return _piece_symbol(text).kind if is_piece(text) else _Cut.NEITHER


def _symbols(item: Node) -> list[_Symbol]:
    """The kinds of JSON tokens among the members of ``item``, or ``item`` itself if it has other members."""
    ends = _ends(item) & ~(1 << _Cut.START)
    kinds = [kind for kind in _JSON_TOKENS if ends >> kind & 1]
    if ends != sum(1 << kind for kind in kinds):
        return [_Symbol(_Cut.NEITHER, terminal(item))]
    return [
        _Symbol(kind, item.text if isinstance(item, Literal) and kind is not _Cut.STRING else None) for kind in kinds
    ]


def _reach(node: Node, below: list[_Reach]) -> _Reach:
    match node:
        case Literal(text):
            return _text_reach(text)
        case Words(texts):
            return _either(map(_text_reach, texts))
        case CharSet():
            return _character_reach(node)
        case Seq():
            return _chain(below)
        case Alt():
            return _either(below)
        case And():
            return tuple(reduce(and_, (reach[cut] for reach in below)) for cut in _Cut)
        case Repeat(_, minimum, maximum):
            return _several(below[0], minimum, len(_Cut) if maximum is None else min(maximum, len(_Cut)))
        case Lexeme():
            return below[0]
    return _ANYWHERE  # a complement: nothing is known about its members


@lru_cache(maxsize=1 << 12)
def _several(once: _Reach, minimum: int, rounds: int) -> _Reach:
    """Any number of repetitions: as many rounds as there are states find every end."""
    result = once if minimum else _UNCHANGED
    for _ in range(rounds):
        longer = tuple(a | b for a, b in zip(result, _chain([result, once]), strict=True))
        if longer == result:
            break
        result = longer
    return result


def _text_reach(text: str) -> _Reach:
    return _chain(map(_letter_reach, text))


def _either(reaches: Iterable[_Reach]) -> _Reach:
    return tuple(reduce(or_, column, 0) for column in zip(*set(reaches), strict=True)) or _NOWHERE


@lru_cache(maxsize=1 << 12)
def _letter_reach(letter: str) -> _Reach:
    return _character_reach(chars(letter))


@lru_cache(maxsize=1 << 12)
def _character_reach(letters: CharSet) -> _Reach:
    steps = [after for kind, after in _STEPS if _overlap(kind, letters)]
    return tuple(reduce(or_, (1 << after[cut] for after in steps), 0) for cut in _Cut)


def _chain(reaches: Iterable[_Reach]) -> _Reach:
    return reduce(_after, reaches, _UNCHANGED)


@lru_cache(maxsize=1 << 12)
def _after(before: _Reach, reach: _Reach) -> _Reach:
    """One text after another."""
    return tuple(reduce(or_, (reach[cut] for cut in _bits(ends)), 0) for ends in before)


def _overlap(left: CharSet, right: CharSet) -> bool:
    return any(low <= high2 and low2 <= high for low, high in left.ranges for low2, high2 in right.ranges)


_reaches = SharedFold(_reach, Not)
_lexeme_faces = SharedFold(_lexeme_face, Lexeme)
