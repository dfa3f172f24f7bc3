"""Regular expressions: the part of ECMAScript (ECMA-262, 22.2) that describes a plain set of strings.

Captures, greediness and match positions do not matter for a language, so all groups are plain and lazy quantifiers
equal greedy ones. Characters are Unicode scalar values. ``\\d`` and ``\\w`` are ASCII, ``\\s`` is ECMAScript's white
space and line terminators, ``.`` is everything but line terminators. As in Annex B of ECMA-262 a brace or bracket
that opens or closes nothing is itself, and a hyphen beside ``\\w`` in a class is itself.

What is left out is refused, never approximated: back-references, property classes, flags, and every spelling that
dialects read in different ways. A whole match knows no assertions but ``^`` and ``$`` at the ends of top-level
alternatives; :func:`search` works out the others, where that is possible.
"""

from __future__ import annotations

import re

from infernix_plugin.errors import ConstraintError, InvalidRegex, excerpt
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.assertions import END, START, Assertion, Unresolved, asserts, boundary, resolve
from infernix_plugin.grammar.expression import Expression, choice_of, sequence
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    NEVER,
    CharSet,
    Literal,
    Node,
    chars,
    charset,
    complement,
    repeat,
)
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.source import Source

DIGIT = charset([(0x30, 0x39)])
WORD = charset([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
SPACE = charset(
    (ord(first), ord(last))
    for first, last in (
        *("\t\r", "  ", "\u00a0\u00a0", "\u1680\u1680", "\u2000\u200a"),
        *("\u2028\u2029", "\u202f\u202f", "\u205f\u205f", "\u3000\u3000", "\ufeff\ufeff"),
    )
)
DOT = complement(chars("\n\r\u2028\u2029"))
_ANYTHING = repeat(ANY_CHAR)

_CLASS_ESCAPES = {
    "d": DIGIT,
    "D": complement(DIGIT),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(SPACE),
}
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
_HEX_ESCAPES = {"x": 2, "u": 4}
_FLAG_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS = re.compile(r"\{(?P<low>[0-9]+)(?:(?P<comma>,)(?P<high>[0-9]*))?\}")
_OPEN_COUNT = re.compile(r"\{,[0-9]+\}")
_PLAIN_GROUP = re.compile(r"\((?:\?:|\?<[A-Za-z_$][A-Za-z0-9_$]*>|(?!\?))")
_LOOKAROUND = re.compile(r"\(\?(?P<behind><)?(?P<sign>[=!])")
_REFUSED_GROUPS = (
    (re.compile(r"\(\?<?="), "lookaround", "describe the allowed strings themselves"),
    (re.compile(r"\(\?<?!"), "negative lookaround", "describe the allowed strings themselves"),
    (re.compile(r"\(\?P"), "the group syntax (?P...)", "write (?<name>...) or (...)"),
    (re.compile(r"\(\?>"), "an atomic group", "write (?:...)"),
    (re.compile(r"\(\?#"), "a comment", "leave it out"),
    (re.compile(r"\(\?[a-zA-Z-]+[:)]"), "a flag", "spell both cases out, as in [aA]"),
)


def parse(pattern: str, options: GrammarOptions) -> Node:
    """The strings that ``pattern`` matches as a whole, as a regular tree without And, Not and Lexeme.

    Raises:
        InvalidRegex: malformed or outside the dialect; the location is ``offset N``.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    return choice_of([body for body, _, _ in _Reader(pattern, options).read()])


def search(pattern: str, options: GrammarOptions) -> Node:
    """The strings that contain a match of ``pattern``, as JSON Schema's ``pattern`` reads it; errors as :func:`parse`.

    Each top-level alternative is held to the start by its ``^`` and to the end by its ``$``. Anchors elsewhere, word
    boundaries and lookaround become intersections and complements.
    """
    found: list[Node] = []
    for body, from_start, to_end in _Reader(pattern, options, assertions=True).read():
        if asserts(body):
            found.append(_resolved([*([START.node] if from_start else []), body, *([END.node] if to_end else [])]))
            continue
        before = [] if from_start else [_ANYTHING]
        after = [] if to_end else [_ANYTHING]
        found.append(sequence([*before, body, *after]))
    return choice_of(found)


def _resolved(items: list[Node]) -> Node:
    try:
        return resolve(sequence(items))
    except Unresolved as error:
        raise InvalidRegex(
            f"the expression {error}, which is not supported", hint="describe the allowed strings"
        ) from None


class _Reader:
    """One pass over one pattern; with ``assertions`` those inside are kept in the tree, else refused."""

    def __init__(self, pattern: str, options: GrammarOptions, *, assertions: bool = False) -> None:
        self._assertions = assertions
        self._source = Source(pattern, InvalidRegex, by_line=False)
        self._source.check_size(options.max_regex_bytes, "max_regex_bytes")
        self._text = pattern
        self._at = 0
        self._expression = Expression(self._source, options)
        self._from_start = [False]
        self._to_end = [False]

    def read(self) -> list[tuple[Node, bool, bool]]:
        """Every top-level alternative with whether it has ``^`` and whether it has ``$``."""
        while self._at < len(self._text):
            self._read_item()
        if self._expression.depth:
            raise self._error("this group is never closed", "add a ')' or write \\(", self._expression.opened_at)
        return list(zip(self._expression.alternatives(), self._from_start, self._to_end, strict=True))

    def _error(self, message: str, hint: str | None = None, at: int | None = None) -> ConstraintError:
        return self._source.error(message, self._at if at is None else at, hint)

    def _peek(self, offset: int = 0) -> str:
        return self._text[self._at + offset : self._at + offset + 1]

    def _read_item(self) -> None:
        at, char = self._at, self._peek()
        expression = self._expression
        match char:
            case "^" | "$":
                self._read_anchor(char)
                return
            case "(":
                self._open_group()
                return
            case "|":
                self._at += 1
                expression.alternative()
                if not expression.depth:
                    self._from_start.append(False)
                    self._to_end.append(False)
                return
            case ")":
                if not expression.depth:
                    raise self._error("this ')' closes nothing", "write \\) to match the character")
                lookaround = _LOOKAROUND.match(expression.tag)
                group = expression.close(at)
                self._at += 1
                if lookaround:
                    behind, negative = bool(lookaround["behind"]), lookaround["sign"] == "!"
                    expression.add_group(Assertion(group, behind, negative).node)
                    self._forbid_quantifier()
                    return
                expression.add_group(group)
            case "*" | "+" | "?":
                raise self._nothing_to_repeat()
            case "[":
                expression.add(_as_node(self._read_class()), at)
            case "\\":
                expression.add(self._read_escape(), at)
            case ".":
                self._at += 1
                expression.add(DOT, at)
            case _:
                if char == "{" and (_COUNTS.match(self._text, at) or _OPEN_COUNT.match(self._text, at)):
                    raise self._nothing_to_repeat()
                self._at += 1
                expression.add(Literal(char), at)
        self._read_quantifier()

    def _nothing_to_repeat(self) -> ConstraintError:
        char = self._peek()
        return self._error(f"'{char}' has nothing to repeat", f"write \\{char} to match the character")

    def _read_anchor(self, anchor: str) -> None:
        place = "start" if anchor == "^" else "end"
        first = self._expression.at_start and not self._from_start[-1]
        last = self._peek(1) in ("", "|")
        if self._expression.depth or not (first if anchor == "^" else last):
            if self._assertions:
                self._expression.add((START if anchor == "^" else END).node, self._at)
                self._at += 1
                self._forbid_quantifier()
                return
            raise self._error(
                f"'{anchor}' is supported only at the {place} of a top-level alternative",
                f"move it there, or write \\{anchor} to match the character",
            )
        (self._from_start if anchor == "^" else self._to_end)[-1] = True
        self._at += 1

    def _open_group(self) -> None:
        match = _LOOKAROUND.match(self._text, self._at) if self._assertions else None
        if match:
            self._expression.open(self._at, match[0])
            self._at = match.end()
            return
        match = _PLAIN_GROUP.match(self._text, self._at)
        if match is None:
            for syntax, name, hint in _REFUSED_GROUPS:
                if syntax.match(self._text, self._at):
                    raise self._error(f"{name} is not supported", hint)
            raise self._error("unknown group syntax", "write (...), (?:...) or (?<name>...)")
        self._expression.open(self._at)
        self._at = match.end()

    def _forbid_quantifier(self) -> None:
        if self._peek() in _FLAG_COUNTS or _COUNTS.match(self._text, self._at):
            raise self._nothing_to_repeat()

    def _read_quantifier(self) -> None:
        at, char = self._at, self._peek()
        if char in _FLAG_COUNTS:
            self._at += 1
            minimum, maximum = _FLAG_COUNTS[char]
        elif match := _COUNTS.match(self._text, at):
            self._at = match.end()
            minimum = self._source.number(match["low"], at)
            maximum = minimum if not match["comma"] else None
            if match["high"]:
                maximum = self._source.number(match["high"], at)
        elif _OPEN_COUNT.match(self._text, at):
            raise self._error(
                "a repetition without its lower count is read differently by different dialects", "write {0,n}"
            )
        else:
            return
        self._expression.repeat(minimum, maximum, at)
        if self._peek() == "?":
            self._at += 1
        if self._peek() == "+":
            raise self._error("a possessive quantifier is not supported", "leave the second quantifier out")
        if self._peek() in _FLAG_COUNTS or _COUNTS.match(self._text, self._at):
            raise self._error("a quantifier cannot follow a quantifier", "put the repeated part into a group (?:...)")

    def _read_escape(self) -> Node:
        at, kind = self._at, self._peek(1)
        if kind in _CLASS_ESCAPES:
            self._at += 2
            return _CLASS_ESCAPES[kind]
        if kind in ("b", "B") and self._assertions:
            self._at += 2
            self._forbid_quantifier()
            return boundary(WORD, negative=kind == "B")
        if kind in ("b", "B"):
            raise self._error("a word boundary is not supported", "describe the neighbouring characters instead", at)
        if kind == "k" or (kind.isdigit() and kind.isascii() and kind != "0"):
            raise self._error("a back-reference is not supported", "repeat the expression itself", at)
        return Literal(self._read_character_escape())

    def _read_character_escape(self) -> str:
        """One character written with a backslash, in a class or outside."""
        at, kind = self._at, self._peek(1)
        if kind in _HEX_ESCAPES:
            if kind == "u" and self._peek(2) == "{":
                raise self._error("the escape \\u{...} is not supported", "write the character itself", at)
            width = _HEX_ESCAPES[kind]
            value = self._source.scalar(at, width)
            self._at += 2 + width
            return chr(value)
        letter = self._peek(2)
        if kind == "c" and letter.isascii() and letter.isalpha():
            self._at += 3
            return chr(ord(letter) % 32)
        if kind == "0" and not (letter.isascii() and letter.isdigit()):
            self._at += 2
            return "\0"
        if kind in _CONTROL_ESCAPES:
            self._at += 2
            return _CONTROL_ESCAPES[kind]
        if kind and kind.isascii() and kind.isprintable() and not kind.isalnum():
            self._at += 2
            return kind
        raise self._unknown_escape(kind)

    def _unknown_escape(self, kind: str) -> ConstraintError:
        if not kind:
            return self._error("the expression ends in a backslash", "write \\\\ to match a backslash")
        if kind in ("p", "P"):
            return self._error("a Unicode property class is not supported", "list the ranges, as in [a-zà-ÿ]")
        if kind.isascii() and kind.isdigit():
            return self._error("an octal escape or back-reference is not supported", "write \\xNN")
        if kind in ("A", "Z", "z"):
            return self._error(f"the anchor \\{kind} is not supported", "write ^ or $")
        return self._error(
            f"unknown escape {excerpt(self._text[self._at : self._at + 2])}", "write the character itself"
        )

    def _read_class(self) -> CharSet:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._at < len(self._text):
            budget.checkpoint()
            if self._peek() == "]":
                self._at += 1
                members = charset(ranges)
                return complement(members) if negated else members
            at = self._at
            low = self._read_class_atom()
            if self._peek() == "-" and self._peek(1) not in ("]", ""):
                self._at += 1
                high = self._read_class_atom()
                if isinstance(low, str) and isinstance(high, str):
                    if high < low:
                        raise self._error(
                            f"the range {excerpt(self._text[at : self._at])} ends before it starts",
                            "put the smaller character first",
                            at,
                        )
                    ranges.append((ord(low), ord(high)))
                    continue
                ranges += [*_ranges(low), (ord("-"), ord("-")), *_ranges(high)]
                continue
            ranges += _ranges(low)
        raise self._error("this class is never closed", "add a ']' or write \\[", start)

    def _read_class_atom(self) -> str | CharSet:
        char, kind = self._peek(), self._peek(1)
        if char != "\\":
            self._at += 1
            return char
        if kind in _CLASS_ESCAPES:
            self._at += 2
            return _CLASS_ESCAPES[kind]
        if kind == "b":
            self._at += 2
            return "\b"
        return self._read_character_escape()


def _ranges(atom: str | CharSet) -> tuple[tuple[int, int], ...]:
    return ((ord(atom), ord(atom)),) if isinstance(atom, str) else atom.ranges


def _as_node(members: CharSet) -> Node:
    return members if members.ranges else NEVER
