"""Lark grammars, the part of the notation that states a context-free language of characters.

vLLM takes Lark text in the same request field as GBNF, so both are told apart here. Rules and terminals mean what
they spell, character by character: there is no lexer that splits the text into tokens first, and nothing is skipped
between them. Regular expressions are read in the dialect of :mod:`infernix_plugin.grammar.regex`.
"""

from __future__ import annotations

import re

from infernix_plugin.errors import InvalidRegex, excerpt
from infernix_plugin.grammar import regex
from infernix_plugin.grammar.expression import Expression, choice_of, sequence
from infernix_plugin.grammar.ir import (
    CharSet,
    Grammar,
    Literal,
    Node,
    Ref,
    TokenSet,
    chars,
    charset,
    complement,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.rule_reader import FLAG_COUNTS, RuleReader

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|#[^\n]*)*")
_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*(?![a-z])|_?[a-z][a-z0-9_]*(?![A-Z])")
_SLIP = re.compile(r"\s*[:=]")
_DEFINITION = re.compile(
    r"(?P<mark>[?!]{0,2})(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<priority>\.-?[0-9]+)?\s*"
    r"(?P<extension>\[[^\]\n]*\]|\{[^}\n]*\})?\s*:(?!:=)"
)
_DIRECTIVE = re.compile(r"%(?P<name>[a-z_]+)")
_IMPORT = re.compile(
    r"%import[ \t]+common"
    r"(?:\.(?P<one>\w+)(?:[ \t]*->[ \t]*(?P<alias>\w+))?|[ \t]*\((?P<many>[\w\s,]+)\))"
    r"[ \t]*(?=[\r\n]|//|#|$)"
)
_STRING = re.compile(r'"(?P<body>(?:[^"\\\n]|\\.)*)"(?P<flag>i?)')
_RANGE = re.compile(r"\s*\.\.\s*")
_REGEX = re.compile(r"/(?!/)(?P<body>(?:[^/\\\n]|\\.)+)/(?P<flags>[a-z]*)")
_ALIAS = re.compile(r"->[ \t]*[A-Za-z_]\w*")
_COUNTS = re.compile(r"~\s*(?P<low>[0-9]+)(?:\s*\.\.\s*(?P<high>[0-9]+))?")
_TOKEN = re.compile(r"<\[(?P<id>[0-9]+)\]>")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)

_CONTROL_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_BRACKETS = {"(": ")", "[": "]"}

_DIGIT = charset([(0x30, 0x39)])
_LOWER = charset([(0x61, 0x7A)])
_UPPER = charset([(0x41, 0x5A)])
_LETTER = charset([(0x41, 0x5A), (0x61, 0x7A)])
_INT = repeat(_DIGIT, 1)
_SIGN = optional(chars("+-"))
_EXPONENT = seq(chars("eE"), _SIGN, _INT)
_DECIMAL = choice_of([seq(_INT, Literal("."), repeat(_DIGIT)), seq(Literal("."), _INT)])
_FLOAT = choice_of([seq(_INT, _EXPONENT), seq(_DECIMAL, optional(_EXPONENT))])
_NUMBER = choice_of([_FLOAT, _INT])
_LINE_REST = repeat(complement(chars("\n")))
_COMMON: dict[str, Node] = {
    "DIGIT": _DIGIT,
    "HEXDIGIT": charset([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
    "INT": _INT,
    "SIGNED_INT": seq(_SIGN, _INT),
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": seq(_SIGN, _FLOAT),
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": seq(_SIGN, _NUMBER),
    "LCASE_LETTER": _LOWER,
    "UCASE_LETTER": _UPPER,
    "LETTER": _LETTER,
    "WORD": repeat(_LETTER, 1),
    "CNAME": seq(charset([*_LETTER.ranges, (0x5F, 0x5F)]), repeat(regex.WORD)),
    "WS_INLINE": repeat(chars(" \t"), 1),
    "WS": repeat(chars(" \t\f\r\n"), 1),
    "CR": Literal("\r"),
    "LF": Literal("\n"),
    "NEWLINE": repeat(seq(optional(Literal("\r")), Literal("\n")), 1),
    "ESCAPED_STRING": seq(
        Literal('"'),
        repeat(choice_of([complement(chars('"\\\n')), seq(Literal("\\"), complement(chars("\n")))])),
        Literal('"'),
    ),
    "SH_COMMENT": seq(Literal("#"), _LINE_REST),
    "CPP_COMMENT": seq(Literal("//"), _LINE_REST),
    "SQL_COMMENT": seq(Literal("--"), _LINE_REST),
}
"""Lark's ``common`` library."""


def looks_like_lark(text: str) -> bool:
    """Whether the first statement is one of Lark's: ``name:`` or a directive; GBNF starts with ``name ::=``.

    ``name ::`` and ``name :=`` are no Lark either; the reader of GBNF says how it is written.
    """
    blank = _BLANK.match(text)
    start = blank.end() if blank else 0
    definition = _DEFINITION.match(text, start)
    return text.startswith("%", start) or (definition is not None and not _SLIP.match(text, definition.end()))


def parse(text: str, options: GrammarOptions) -> Grammar:
    """Read Lark text whose entry rule is ``start``.

    Raises:
        InvalidGrammar: a syntax error, an undefined or doubly defined name, or a feature outside the subset; the
            location is ``line:column``.
        UnsatisfiableConstraint: ``start`` derives no string at all.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    return _LarkReader(text, options).read()


class _LarkReader(RuleReader):
    entry = "start"
    definition = "name: expression"
    blank = _BLANK
    control_escapes = _CONTROL_ESCAPES

    def _read_statement(self) -> None:
        if self._text[self._at] == "%":
            self._read_directive()
        else:
            self._read_definition()

    def _at_statement(self, first_on_line: bool) -> bool:
        starts = self._text.startswith("%", self._at) or _DEFINITION.match(self._text, self._at) is not None
        return self._at >= len(self._text) or (first_on_line and starts)

    def _entry_hint(self) -> str:
        gbnf = "; in GBNF, a rule is written root ::= expression" if "root" in self._rules else ""
        return super()._entry_hint() + gbnf

    def _read_directive(self) -> None:
        at = self._at
        match = _IMPORT.match(self._text, at)
        if match is None:
            directive = _DIRECTIVE.match(self._text, at)
            if directive is not None and directive["name"] == "ignore":
                raise self._error("%ignore is not supported", "write the white space where it may stand")
            if directive is not None and directive["name"] == "import":
                raise self._error("only the terminals of 'common' can be imported", "write %import common.NAME")
            raise self._error(f"the directive {excerpt(directive[0] if directive else '%')} is not supported")
        for name_of_one in re.findall(r"\w+", match["many"] or match["one"]):
            body = _COMMON.get(name_of_one)
            if body is None:
                raise self._error(
                    f"'common' has no terminal {excerpt(name_of_one)} that is supported here", "define it here"
                )
            name = match["alias"] or name_of_one
            self._claim(name, at)
            self._rules[name] = body
        self._at = match.end()
        self._skip_blank()

    def _read_definition(self) -> None:
        at = self._at
        match = _DEFINITION.match(self._text, at)
        if match is None:
            raise self._error("expected a rule, a terminal or a directive", f"write {self.definition}")
        if match["extension"] is not None:
            kind = "a template" if match["extension"].startswith("{") else "a rule option"
            raise self._error(f"{kind} is not supported", at=match.start("extension"))
        if not _NAME.fullmatch(match["name"]):
            raise self._error(
                f"the name {excerpt(match['name'])} mixes cases", "rules are lower case, terminals upper case"
            )
        self._at = match.end()
        self._claim(match["name"], at)
        self._rules[match["name"]] = self._read_body()

    def _read_body(self) -> Node:
        """Read up to the next statement or the end of the text."""
        expression = Expression(self.source, self._options)
        while not self._at_statement(self._skip_blank()):
            self._read_item(expression)
        return self._finish_body(expression, _BRACKETS.get(expression.tag, ")"))

    def _read_item(self, expression: Expression) -> None:
        at, char = self._at, self._text[self._at]
        match char:
            case '"':
                expression.add(self._read_string(), at)
            case "/":
                expression.add(self._read_regex(), at)
            case "(" | "[":
                expression.open(at, char)
                self._at += 1
            case ")" | "]":
                self._close_group(expression)
            case "|":
                expression.alternative()
                self._at += 1
            case "*" | "+" | "?" | "~":
                self._read_repetition(expression)
            case "-":
                self._skip_alias()
            case "<":
                expression.add(self._read_token(), at)
            case _:
                expression.add(self._read_reference(), at)

    def _close_group(self, expression: Expression) -> None:
        char = self._text[self._at]
        if not expression.depth or _BRACKETS[expression.tag] != char:
            raise self._error(f"this '{char}' closes nothing")
        is_optional = expression.tag == "["
        group = expression.close(self._at)
        expression.add_group(optional(group) if is_optional else group)
        self._at += 1

    def _read_repetition(self, expression: Expression) -> None:
        at, char = self._at, self._text[self._at]
        if expression.at_start:
            raise self._error(f"'{char}' has nothing to repeat")
        if char in FLAG_COUNTS:
            self._at += 1
            minimum, maximum = FLAG_COUNTS[char]
        else:
            match = _COUNTS.match(self._text, at)
            if match is None:
                raise self._error("expected a repetition", "write ~n or ~n..m")
            self._at = match.end()
            minimum = self.source.number(match["low"], at)
            maximum = self.source.number(match["high"], at) if match["high"] else minimum
        expression.repeat(minimum, maximum, at)

    def _skip_alias(self) -> None:
        match = _ALIAS.match(self._text, self._at)
        if match is None:
            raise self._error("unexpected character '-'")
        self._at = match.end()

    def _read_token(self) -> TokenSet:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error("a token must be given by its id", "write <[id]>")
        self._at = match.end()
        return TokenSet((self.source.number(match["id"], match.start("id")),))

    def _read_reference(self) -> Ref:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._unexpected()
        if self._text.startswith("{", match.end()):
            raise self._error("a template is not supported")
        self._references.setdefault(match[0], self._at)
        self._at = match.end()
        return Ref(match[0])

    def _read_string(self) -> Node:
        at = self._at
        text, flag = self._read_quoted()
        if not (dots := _RANGE.match(self._text, self._at)):
            return sequence([_either_case(char) for char in text]) if flag else Literal(text)
        self._at = dots.end()
        if not self._text.startswith('"', self._at):
            raise self._error("expected the last character of a range", 'write "a".."z"')
        last, last_flag = self._read_quoted()
        if len(text) != 1 or len(last) != 1 or flag or last_flag:
            raise self._error("a range goes from one character to another", 'write "a".."z"', at)
        if last < text:
            raise self._error("the range ends before it starts", "put the smaller character first", at)
        return charset([(ord(text), ord(last))])

    def _read_quoted(self) -> tuple[str, str]:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("this literal is never closed on its line", "add a '\"'")
        start = match.start("body")
        self._at = match.end()
        if match["flag"] and not match["body"].isascii():
            raise self._error("a case-insensitive literal must be ASCII", "write both cases as alternatives", start)
        text = _ESCAPE.sub(lambda escape: self._escaped(start + escape.start())[0], match["body"])
        return text, match["flag"]

    def _read_regex(self) -> Node:
        match = _REGEX.match(self._text, self._at)
        if match is None:
            raise self._error("this regular expression is never closed on its line", "add a '/'")
        if match["flags"]:
            raise self._error(
                "flags of a regular expression are not supported", "spell both cases out", match.start("flags")
            )
        try:
            node = regex.parse(match["body"], self._options)
        except InvalidRegex as fault:
            inside = int(fault.location.removeprefix("offset ")) if fault.location else 0
            raise self._error(fault.message, fault.hint, match.start("body") + inside) from None
        self._at = match.end()
        return node


def _either_case(char: str) -> CharSet | Literal:
    both = {char.lower(), char.upper()}
    return chars("".join(both)) if len(both) > 1 else Literal(char)
