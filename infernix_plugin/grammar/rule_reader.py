"""What the readers of rule notations (GBNF, Lark) have in common: named rules, bodies, escapes and their errors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from infernix_plugin.errors import ConstraintError, InvalidGrammar, UnsatisfiableConstraint, excerpt
from infernix_plugin.grammar.analysis import productive, reachable
from infernix_plugin.grammar.expression import Expression, choice_of
from infernix_plugin.grammar.ir import Grammar, Node, Remark
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.source import Source

FLAG_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
MAX_REMARKS = 20
"""Most useless rules of one grammar that are named."""
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


class RuleReader(ABC):
    """One pass over one text. A notation says how a statement is read and what blanks and escapes look like."""

    entry: ClassVar[str]
    """Name of the entry rule."""
    definition: ClassVar[str]
    """How a rule is written."""
    blank: ClassVar[re.Pattern[str]]
    """Blanks and comments; matches everywhere, if only the empty text."""
    control_escapes: ClassVar[dict[str, str]]
    """The letter after a backslash and the character that both stand for."""

    def __init__(self, text: str, options: GrammarOptions) -> None:
        """Take ``text``, not yet read.

        Raises:
            ConstraintTooLarge: it is longer than ``options.max_grammar_bytes``.
        """
        self.source = Source(text, InvalidGrammar, by_line=True)
        self.source.check_size(options.max_grammar_bytes, "max_grammar_bytes")
        self._options = options
        self._text = text
        self._at = 0
        self._rules: dict[str, Node] = {}
        self._defined_at: dict[str, int] = {}
        self._references: dict[str, int] = {}
        self._nodes = 0

    def read(self) -> Grammar:
        """Read every statement and check that the rules fit together.

        Raises:
            InvalidGrammar: a syntax error, or a rule that is undefined or defined twice.
            UnsatisfiableConstraint: the entry rule derives no string at all.
            ConstraintTooLarge: a limit of the options is passed.
        """
        self._skip_blank()
        while self._at < len(self._text):
            self._read_statement()
        for name, offset in self._references.items():
            if name not in self._rules:
                raise self.source.error(f"the rule {excerpt(name)} is not defined", offset)
        if self.entry not in self._rules:
            raise InvalidGrammar(f"the grammar has no rule named '{self.entry}'", hint=self._entry_hint())
        grammar = Grammar(self._rules, self.entry)
        alive = productive(grammar)
        if self.entry not in alive:
            raise UnsatisfiableConstraint(
                f"the rule '{self.entry}' derives no finite string",
                location=self.source.location(self._defined_at[self.entry]),
                hint="give every recursion an alternative that ends it",
            )
        return replace(grammar, remarks=tuple(self._remarks(alive, reachable(grammar))))

    def _remarks(self, alive: set[str], needed: set[str]) -> Iterator[Remark]:
        """The rules that add nothing to the language, in the order of the text; the number of remarks is bounded."""
        useless = [name for name in self._defined_at if name not in alive or name not in needed]
        for name in useless[:MAX_REMARKS]:
            why = "derives no finite string" if name not in alive else f"cannot be reached from '{self.entry}'"
            yield Remark(f"the rule {excerpt(name)} {why}", self.source.location(self._defined_at[name]))
        if len(useless) > MAX_REMARKS:
            first = self.source.location(self._defined_at[useless[MAX_REMARKS]])
            yield Remark(f"{len(useless) - MAX_REMARKS} more rules add nothing to the language", first)

    @abstractmethod
    def _read_statement(self) -> None:
        """Read one statement, which starts at the present position, and the blanks behind it."""

    def _error(self, message: str, hint: str | None = None, at: int | None = None) -> ConstraintError:
        return self.source.error(message, self._at if at is None else at, hint)

    def _skip_blank(self) -> bool:
        """Skip blanks and comments; return whether the next token is the first on its line."""
        match = self.blank.match(self._text, self._at)
        assert match is not None
        first_on_line = self._at == 0 or "\n" in match[0] or "\r" in match[0]
        self._at = match.end()
        return first_on_line

    def _claim(self, name: str, at: int) -> None:
        """Take ``name`` for the rule whose definition starts at ``at``."""
        if name in self._defined_at:
            first = self.source.location(self._defined_at[name])
            raise self._error(f"the rule {excerpt(name)} is already defined at {first}", at=at)
        self._defined_at[name] = at

    def _finish_body(self, expression: Expression, closing: str) -> Node:
        """The body that ``expression`` has collected; ``closing`` is what an open group would need."""
        if expression.depth:
            raise self._error("this group is never closed", f"add a '{closing}'", expression.opened_at)
        body = choice_of(expression.alternatives())
        self._nodes += expression.nodes
        if self._nodes > self._options.max_nodes:
            raise self.source.too_large(f"more than {self._options.max_nodes} nodes (max_nodes)", self._at)
        return body

    def _escaped(self, at: int) -> tuple[str, int]:
        """The character that the escape at ``at`` stands for, and where the escape ends."""
        kind = self._text[at + 1 : at + 2]
        if kind in _HEX_ESCAPES:
            width = _HEX_ESCAPES[kind]
            return chr(self.source.scalar(at, width)), at + 2 + width
        if kind in self.control_escapes:
            return self.control_escapes[kind], at + 2
        if kind and kind.isascii() and kind.isprintable() and not kind.isalnum():
            return kind, at + 2
        raise self._error(
            f"unknown escape {excerpt(self._text[at : at + 2])}", "a backslash itself is written \\\\", at
        )

    def _entry_hint(self) -> str:
        return f"name the entry rule '{self.entry}'"

    def _unexpected(self) -> ConstraintError:
        char = self._text[self._at]
        hint = "write literals in double quotes" if char == "'" else None
        if char in ":=>":
            hint = f"a rule is written {self.definition}"
        return self._error(f"unexpected character {excerpt(char)}", hint)
