"""From a constraint to its grammar, whatever its kind."""

from __future__ import annotations

from infernix_plugin.errors import UnsatisfiableConstraint
from infernix_plugin.grammar import choice, gbnf, lark, regex
from infernix_plugin.grammar.analysis import productive
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.options import GrammarOptions


def build(constraint: OutputConstraint, options: GrammarOptions) -> Grammar:
    """The grammar of everything the content may be, which is never the empty language.

    Raises:
        ConstraintError: the constraint is malformed, not supported, too large or describes nothing; the subclass
            and its location say which and where.
    """
    match constraint.kind:
        case ConstraintKind.GRAMMAR:
            read = lark.parse if lark.looks_like_lark(constraint.source) else gbnf.parse
            return read(constraint.source, options)
        case ConstraintKind.REGEX:
            grammar = Grammar({"root": regex.parse(constraint.source, options)})
            if not productive(grammar):
                raise UnsatisfiableConstraint("the regular expression matches no string at all")
            return grammar
        case ConstraintKind.CHOICE:
            return Grammar({"root": choice.lower(constraint.choices, options)})
        case ConstraintKind.JSON_OBJECT:
            from infernix_plugin.grammar import json_schema

            return json_schema.json_object(options)
        case ConstraintKind.JSON_SCHEMA:
            from infernix_plugin.grammar import json_schema

            return json_schema.lower(constraint.source, options)
