r"""The grammar tree as Lark text for llguidance, which also knows intersection and complement of terminals.

llguidance cuts the output into terminals with a longest-match lexer, so only what a longest-match lexer may decide
becomes a terminal: every :class:`Lexeme`, and the pieces of every :class:`Literal`. For which grammars that is exact,
:mod:`infernix_plugin.matching.engines.lexing` says. Terminals are written as Rust ``regex`` inside ``/.../``, with
``& | ~ {m,n}`` around such where they hold intersections.
"""

from __future__ import annotations

import re
from json import JSONEncoder
from typing import NamedTuple, TypeGuard

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import SharedFold, nullable, productive, references
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
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
    seq,
    words,
)

MAX_GROUP_DEPTH = 24
"""Deepest nesting inside one rule; what is deeper becomes a rule of its own."""
MAX_SYMBOLS = 65_000
"""Most rules, groups and pieces of text outside terminals. llguidance takes 65,525 symbols in all and says so after
seconds, and memory, that nobody can stop: what it takes for them grows with their square, up to two seconds."""
_LONG = 1024
"""Characters from which on a text is no regular expression: of those llguidance makes a hundred bytes for each."""
_ANY_TEXT = "/(?s:.*)/"
_COUNTS = {(0, 1): "?", (0, None): "*", (1, None): "+"}
_SPECIAL = re.compile(r"""[^0-9A-Za-z_"',:;=@%]""")
_encode = JSONEncoder(ensure_ascii=False).encode
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', re.DOTALL | re.ASCII)


def emit_lark(grammar: Grammar) -> str:
    """Write ``grammar`` as llguidance Lark whose entry rule is ``start``.

    Raises:
        ValueError: a character set, an intersection or a complement stands outside every lexeme.
        ConstraintTooLarge: more than :data:`MAX_SYMBOLS` symbols.
    """
    return _Writer(grammar).text()


def literal_pieces(text: str) -> list[str]:
    """Cut a literal into the terminals it becomes: JSON strings, words, runs of blanks and single characters.

    So the literal ``{"a":1`` and a brace followed by other terminals share their first terminal.
    """
    return _PIECE.findall(text)


def is_piece(text: str) -> bool:
    """Whether a literal becomes one terminal."""
    return _PIECE.fullmatch(text) is not None


def terminal(item: Node) -> str:
    """The inside of a lexeme as a terminal: equal texts are equal languages.

    Raises:
        ValueError: it is not regular.
    """
    return _expression(_text(item))


class _Writer:
    """Writes rules in the order they are first needed; rules made on the way are queued behind them."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._alive = productive(grammar)
        self._names: dict[str, str] = {}
        self._queue: list[tuple[str, Node]] = []
        self._terminals: dict[str, str] = {}
        self._literals: dict[str, str] = {}
        self._lexemes: dict[int, str] = {}

    def text(self) -> str:
        rules = [f"start: {self._rule(self._grammar.root)}"]
        for name, body in budget.watched(self._queue):  # grows while it is written
            rules.append(f"{name}: {self._choice(body, 0)}")
        # No piece of text holds one of these characters: each bracket is a group, each pair of slashes a piece.
        symbols = len(rules) + sum(rule.count("(") + rule.count("/") // 2 for rule in budget.watched(rules))
        if symbols > MAX_SYMBOLS:
            raise ConstraintTooLarge(
                f"the constraint is over a limit of its engine: it needs {symbols} symbols; the most is {MAX_SYMBOLS}",
                hint="fewer members, listed values and alternatives need fewer",
            )
        terminals = [f"{name}: {body}" for body, name in self._terminals.items()]
        # Forcing would restrict the mask to one canonical tokenisation where the text has only one way to go on.
        return "\n".join(['%llguidance {"no_forcing": true}', *rules, *terminals, ""])

    def _rule(self, name: str) -> str:
        if name not in self._names:
            body = self._grammar.rules[name] if name in self._alive else NEVER
            self._names[name] = self._enqueue(_as_loop(name, body))
        return self._names[name]

    def _enqueue(self, body: Node) -> str:
        name = f"r{len(self._queue)}"
        self._queue.append((name, body))
        return name

    def _choice(self, node: Node, depth: int) -> str:
        if not isinstance(node, Alt):
            return self._sequence(node, depth)
        # One terminal for all single-piece literals: it is cut in the same way, and long lists stay within limits.
        pieces = [option.text for option in budget.watched(node.options) if _is_piece(option)]
        merged = len(pieces) > 1
        others = [option for option in node.options if not merged or not _is_piece(option)]
        options = [self._sequence(option, depth) for option in budget.watched(others)]
        if merged:
            options.append(self._lexeme(words(pieces)))
        return " | ".join(options) or self._lexeme(NEVER)

    def _sequence(self, node: Node, depth: int) -> str:
        items = node.items if isinstance(node, Seq) else (node,)
        return " ".join(self._element(item, depth) for item in budget.watched(items)) or '""'

    def _element(self, node: Node, depth: int) -> str:
        match node:
            case Ref(name):
                return self._names.get(name) or self._rule(name)
            case Literal(text):
                return self._literals.get(text) or self._literal(text)
            case Words(texts):
                return self._group(Alt(tuple(map(Literal, texts))), depth)
            case Lexeme():
                return self._shared_lexeme(node)
            case TokenSet((), False):
                return self._lexeme(NEVER)
            case TokenSet(ids, exclude):
                return _token_set(ids, exclude)
            case Repeat(item, minimum, maximum):
                return self._group(item, depth) + _count(minimum, maximum)
            case Seq() | Alt():
                return self._group(node, depth)
            case _:
                raise ValueError(f"{type(node).__name__} outside a lexeme")

    def _group(self, node: Node, depth: int) -> str:
        return self._enqueue(node) if depth >= MAX_GROUP_DEPTH else f"({self._choice(node, depth + 1)})"

    def _literal(self, text: str) -> str:
        self._literals[text] = " ".join(f"/{_regex_text(piece)}/" for piece in literal_pieces(text)) or '""'
        return self._literals[text]

    def _shared_lexeme(self, node: Lexeme) -> str:
        if id(node) not in self._lexemes:
            self._lexemes[id(node)] = (
                f"{self._lexeme(_without_empty(node.item))}?" if nullable(node) else self._lexeme(node.item)
            )
        return self._lexemes[id(node)]

    def _lexeme(self, item: Node) -> str:
        return self._terminals.setdefault(terminal(item), f"T{len(self._terminals)}")


def _is_piece(node: Node) -> TypeGuard[Literal]:
    return isinstance(node, Literal) and is_piece(node.text)


def _as_loop(name: str, body: Node) -> Node:
    """``name ::= x name | y`` as ``x* y``.

    A rule that ends in itself is completed once per round when it ends, all in one step, which after some thousand
    rounds is over llguidance's limit.
    """
    rounds: list[Node] = []
    ends: list[Node] = []
    for option in body.options if isinstance(body, Alt) else ():
        if isinstance(option, Seq) and option.items[-1] == Ref(name):
            rounds.append(seq(*option.items[:-1]))
        else:
            ends.append(option)
    if not rounds or any(name in references(part) for part in (*rounds, *ends)):
        return body
    return seq(Repeat(alt(*rounds), 0, None), alt(*ends))


def _without_empty(item: Node) -> Node:
    if isinstance(item, Repeat) and not nullable(item.item):
        return Repeat(item.item, 1, item.maximum)
    if isinstance(item, Words):
        return words(filter(None, item.texts))
    return And((item, Not(EPSILON)))


def _count(minimum: int, maximum: int | None) -> str:
    if minimum == maximum:
        return f"{{{minimum}}}"
    return _COUNTS.get((minimum, maximum)) or f"{{{minimum},{'' if maximum is None else maximum}}}"


def _token_set(ids: tuple[int, ...], exclude: bool) -> str:
    if not ids:
        return "<[*]>"
    return f"<[{'^' if exclude else ''}{','.join(map(str, ids))}]>"


# -- terminals ---------------------------------------------------------------------------------------------------


_ATOM, _SEQUENCE, _ALTERNATIVE = range(3)


class _Terminal(NamedTuple):
    """A terminal's text: the inside of ``/.../``, or an expression around such."""

    text: str
    is_regex: bool
    binding: int = _ALTERNATIVE
    """How tightly a regex holds together."""
    is_complement: bool = False
    """Over bytes: it also has members that are not text."""


def _expression(part: _Terminal) -> str:
    if part.is_complement:
        return f"({part.text} & {_ANY_TEXT})"
    if not part.is_regex:
        return part.text
    return f"/{part.text}/" if part.text else '""'


def _operand(part: _Terminal) -> str:
    """A part of an intersection, which binds more tightly than alternatives that are no regular expression."""
    text = _expression(part)
    open_alternatives = not part.is_regex and not part.is_complement and part.binding == _ALTERNATIVE
    return f"({text})" if open_alternatives else text


def _combine(node: Node, below: list[_Terminal]) -> _Terminal:
    match node:
        case Literal(text) if len(text) > _LONG:
            return _Terminal(_quoted(text), False, _ATOM)
        case Literal(text):
            return _Terminal(_regex_text(text), True, _ATOM if len(text) == 1 else _SEQUENCE if text else _ALTERNATIVE)
        case Words(listed):
            # As texts, not as a regular expression: llguidance makes its own tree of them, and many times faster.
            return _Terminal("|".join(map(_quoted, listed)), False)
        case CharSet(ranges):
            return _Terminal(_character_class(ranges), True, _ATOM)
        case Alt(()):
            return _Terminal(_character_class(()), True, _ATOM)
        case And():
            # One item that is text makes the intersection text; a complement is left as simple as it can be.
            only_complements = all(part.is_complement for part in below)
            parts = (part.text if part.is_complement and not only_complements else _operand(part) for part in below)
            return _Terminal(f"({' & '.join(parts)})", False, _ATOM)
        case Not():
            return _Terminal(f"~({_expression(below[0])})", False, is_complement=True)
        case Lexeme():
            return below[0]
        case Ref() | TokenSet():
            raise ValueError(f"{type(node).__name__} inside a lexeme")
        case Repeat(_, _, 0):
            return _Terminal("", True, _ALTERNATIVE)
    is_regex = all(part.is_regex for part in below)
    match node:
        case Seq():
            texts = [_grouped(part, _SEQUENCE, is_regex) for part in below]
            return _Terminal(("" if is_regex else " ").join(texts), is_regex, _SEQUENCE)
        case Alt():
            texts = [_grouped(part, _ALTERNATIVE, is_regex) for part in below]
            return _Terminal("|".join(texts), is_regex)
        case Repeat(_, minimum, maximum):
            text = _grouped(below[0], _ATOM, is_regex)
            return _Terminal(text + _count(minimum, maximum), is_regex, _SEQUENCE)
    raise ValueError(f"unknown node {type(node).__name__}")


def _grouped(part: _Terminal, binding: int, in_regex: bool) -> str:
    """A part's text as an operand of something that binds so tightly."""
    if not in_regex:
        return f"({_expression(part)})"
    return part.text if part.text and part.binding <= binding else f"(?:{part.text})"


def _character_class(ranges: tuple[tuple[int, int], ...]) -> str:
    if not ranges:
        return r"[^\x{0}-\x{10ffff}]"
    parts = (
        _regex_text(chr(low)) if low == high else f"{_regex_text(chr(low))}-{_regex_text(chr(high))}"
        for low, high in ranges
    )
    return f"[{''.join(parts)}]"


def _quoted(text: str) -> str:
    return _encode(text).replace("\x7f", r"\u007f")  # llguidance takes all but this control character as JSON does


def _regex_text(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\x{{{ord(match.group()):x}}}", text)


_text = SharedFold(_combine)
