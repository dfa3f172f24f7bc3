"""GBNF, the grammar notation of llama.cpp, and what xgrammar adds to it that is a matter of language.

Layout is free: a rule ends where the next line that starts with ``name ::=`` begins, which reads every text that
llama.cpp or xgrammar accepts the same way. Beyond llama.cpp this reader takes ``{,n}``, dotted rule names where such
a rule is defined, xgrammar's extra escapes, ``[^]``, ``Token(id, ...)``, ``ExcludeToken(id, ...)`` and the ``(= ...)``
annotation, a compile hint that has no effect on the language and is checked and dropped.
"""

from __future__ import annotations

import re

from infernix_plugin.errors import ConstraintError, excerpt
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.expression import Expression
from infernix_plugin.grammar.ir import ANY_CHAR, CharSet, Grammar, Literal, Node, Ref, TokenSet, charset, complement
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.rule_reader import FLAG_COUNTS, RuleReader

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,8}")
_DEFINITION = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)[ \t]*(?P<options>\[[^\]\n]*\])?\s*::=")
_DEFINED_NAME = re.compile(r"^[ \t]*([A-Za-z0-9_.-]+)\s*::=", re.MULTILINE)
_COUNTS = re.compile(r"\{\s*(?P<low>[0-9]*)\s*(?P<comma>,)?\s*(?P<high>[0-9]*)\s*\}")
_PLAIN_TEXT = re.compile(r'[^"\\]+')
_TOKEN_IDS = re.compile(r"\(\s*(?P<ids>[0-9]+(?:\s*,\s*[0-9]+)*)\s*,?\s*\)")
_BRACKETED_TOKEN = re.compile(r"(?P<exclude>!?)<\[(?P<id>[0-9]+)\]>")

_CONTROL_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "e": "\x1b"}
_TOKEN_MACROS = {"Token": False, "ExcludeToken": True}
_REFUSED_MACROS = ("TagDispatch", "TokenTagDispatch", "Regex", "Substring")
_LOOKAHEAD = "lookahead"


def parse(text: str, options: GrammarOptions) -> Grammar:
    """Read GBNF text whose entry rule is ``root``.

    Raises:
        InvalidGrammar: a syntax error, an undefined or doubly defined rule, or something that does not state a
            language (rule options, dispatch macros); the location is ``line:column``.
        UnsatisfiableConstraint: ``root`` derives no string at all.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    return _GbnfReader(text, options).read()


def token_terminals(text: str, options: GrammarOptions) -> tuple[tuple[int, str], ...]:
    """Every token id that the text names, in order, with its ``line:column``, to be checked against a vocabulary."""
    reader = _GbnfReader(text, options)
    reader.read()
    return tuple((token, reader.source.location(offset)) for token, offset in reader.tokens)


class _GbnfReader(RuleReader):
    entry = "root"
    definition = "name ::= expression"
    blank = _BLANK
    control_escapes = _CONTROL_ESCAPES

    def __init__(self, text: str, options: GrammarOptions) -> None:
        super().__init__(text, options)
        self.tokens: list[tuple[int, int]] = []
        self._across: int | None = None
        """Where the first literal begins that goes over the end of a line."""
        self._names = {match[1] for match in _DEFINED_NAME.finditer(text)}

    def _read_statement(self) -> None:
        start = self._at
        match = _DEFINITION.match(self._text, start)
        if match is None:
            raise self._error("expected a rule definition", f"write {self.definition}")
        name = match["name"]
        if match["options"] is not None:
            raise self._refused_options(match["options"], match.start("options"))
        self._claim(name, start)
        self._at = match.end()
        self._rules[name] = self._read_body()

    def _refused_options(self, options: str, offset: int) -> ConstraintError:
        name = options[1:-1].partition("=")[0].strip()
        return self._error(
            f"the rule option {excerpt(name)} changes sampling, not the language, and is not supported",
            "set it on the request instead",
            offset,
        )

    def _read_body(self) -> Node:
        """Read up to the next definition or the end of the text."""
        expression = Expression(self.source, self._options)
        while True:
            first_on_line = self._skip_blank()
            if self._at >= len(self._text) or (first_on_line and _DEFINITION.match(self._text, self._at)):
                break
            if not self._read_item(expression):
                break
        return self._finish_body(expression, ")")

    def _read_item(self, expression: Expression) -> bool:
        """Read one token of a body; return whether the body may go on after it."""
        at, char = self._at, self._text[self._at]
        match char:
            case '"':
                expression.add(self._read_literal(), at)
            case "[":
                expression.add(self._read_class(), at)
            case ".":
                self._at += 1
                expression.add(ANY_CHAR, at)
            case "|":
                self._at += 1
                expression.alternative()
            case "*" | "+" | "?" | "{":
                self._read_repetition(expression)
            case "(":
                self._open_group(expression)
            case ")":
                return self._close_group(expression)
            case "<" | "!":
                expression.add(self._read_bracketed_token(), at)
            case _:
                expression.add(self._read_name(), at)
        return True

    def _open_group(self, expression: Expression) -> None:
        if not self._text.startswith("(=", self._at):
            expression.open(self._at)
            self._at += 1
            return
        if expression.depth:
            raise self._error("a (= ...) annotation belongs to the end of a rule, not into a group")
        expression.open(self._at, _LOOKAHEAD)
        self._at += 2

    def _close_group(self, expression: Expression) -> bool:
        if not expression.depth:
            raise self._error("this ')' closes nothing")
        is_lookahead = expression.tag == _LOOKAHEAD
        group = expression.close(self._at)
        self._at += 1
        if not is_lookahead:
            expression.add_group(group)
            return True
        first_on_line = self._skip_blank()
        if self._at < len(self._text) and not (first_on_line and _DEFINITION.match(self._text, self._at)):
            raise self._error("nothing may follow the (= ...) annotation of a rule")
        return False

    def _read_repetition(self, expression: Expression) -> None:
        at, char = self._at, self._text[self._at]
        if expression.at_start:
            raise self._error(f"'{char}' has nothing to repeat", f'write "\\{char}" in quotes to match the character')
        if char in FLAG_COUNTS:
            self._at += 1
            minimum, maximum = FLAG_COUNTS[char]
        else:
            match = _COUNTS.match(self._text, at)
            if match is None or not (match["low"] or (match["comma"] and match["high"])):
                raise self._error("expected a repetition", "write {m}, {m,}, {m,n} or {,n}")
            self._at = match.end()
            minimum = self.source.number(match["low"] or "0", at)
            maximum = self.source.number(match["high"], at) if match["high"] else None
            if not match["comma"]:
                maximum = minimum
        expression.repeat(minimum, maximum, at)

    def _read_literal(self) -> Node:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            budget.checkpoint()
            if self._text[self._at] == '"':
                if self._across is None and "\n" in self._text[start : self._at]:
                    self._across = start
                self._at += 1
                return Literal("".join(parts))
            plain = _PLAIN_TEXT.match(self._text, self._at)
            if plain is not None:
                parts.append(plain[0])
                self._at = plain.end()
            else:
                parts.append(self._read_escape())
        if self._across is not None:  # it may have taken the mark that opens the next one for its own end
            raise self._error(
                "this literal goes over the end of its line, and the last one is never closed",
                "add a '\"', and write \\n for a line end that is meant",
                self._across,
            )
        raise self._error("this literal is never closed", "add a '\"'", start)

    def _read_class(self) -> CharSet:
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._at < len(self._text):
            budget.checkpoint()
            at = self._at
            if self._text[at] == "]":
                self._at += 1
                if not ranges and not negated:
                    raise self._error("an empty class matches nothing", "write \\] to match a bracket", start)
                members = charset(ranges)
                return complement(members) if negated else members
            low = high = self._read_class_character()
            if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._read_class_character()
                if high < low:
                    raise self._error(
                        f"the range {excerpt(self._text[at : self._at])} ends before it starts",
                        "put the smaller character first",
                        at,
                    )
            ranges.append((low, high))
        raise self._error("this class is never closed", "add a ']'", start)

    def _read_class_character(self) -> int:
        char = self._text[self._at]
        if char == "\\":
            return ord(self._read_escape())
        self._at += 1
        return ord(char)

    def _read_escape(self) -> str:
        char, self._at = self._escaped(self._at)
        return char

    def _read_name(self) -> Node:
        at = self._at
        match = _DOTTED_NAME.match(self._text, at)
        if match is not None and "." in match[0] and match[0] not in self._names:
            match = _NAME.match(self._text, at)
        if match is None:
            if self._text.startswith("::=", at):
                raise self._error("a rule definition must start on its own line")
            raise self._unexpected()
        name = match[0]
        self._at = match.end()
        is_call = self._text.startswith("(", self._at) and name not in self._names
        if is_call and name in _REFUSED_MACROS:
            raise self._error(f"the macro {name} is not supported", "write the language as rules", at)
        if is_call and name in _TOKEN_MACROS:
            return self._read_token_ids(name)
        self._references.setdefault(name, at)
        return Ref(name)

    def _read_token_ids(self, name: str) -> TokenSet:
        match = _TOKEN_IDS.match(self._text, self._at)
        if match is None:
            raise self._error(f"{name} takes one or more token ids", f"write {name}(1, 2)")
        self._at = match.end()
        ids: set[int] = set()
        for digits in re.finditer(r"[0-9]+", match["ids"]):
            ids.add(self._note_token(digits[0], match.start("ids") + digits.start()))
        return TokenSet(tuple(sorted(ids)), _TOKEN_MACROS[name])

    def _read_bracketed_token(self) -> TokenSet:
        """llama.cpp's own token terminals, ``<[id]>`` and ``!<[id]>``."""
        match = _BRACKETED_TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error("a token must be given by its id", "write <[id]> or Token(id)")
        self._at = match.end()
        return TokenSet((self._note_token(match["id"], match.start("id")),), bool(match["exclude"]))

    def _note_token(self, digits: str, offset: int) -> int:
        token = self.source.number(digits, offset)
        self.tokens.append((token, offset))
        return token
