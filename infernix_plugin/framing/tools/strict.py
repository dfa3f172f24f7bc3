"""The arguments of a strict function: its schema as the grammar of what stands between the lines of a call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.framing.tools.contract import UNNAMEABLE
from infernix_plugin.framing.tools.encoding import TEXT, Encoding, Written
from infernix_plugin.framing.tools.markup import (
    ANY_TEXT_VALUE,
    FUNCTION_ENDING,
    VALUE_END,
    argument_heading,
    is_writable,
    json_value,
    text_value,
)
from infernix_plugin.grammar import json_schema
from infernix_plugin.grammar.ir import (
    NEVER,
    Grammar,
    Lexeme,
    Literal,
    Node,
    alt,
    chars,
    charset,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema.derivatives import Intersection, Undecided
from infernix_plugin.grammar.json_schema.json_value import ROOT, child
from infernix_plugin.grammar.json_schema.lowering import Lowering
from infernix_plugin.grammar.json_schema.reducer import Reducer
from infernix_plugin.grammar.json_schema.shape import (
    UNCONSTRAINED,
    Arrays,
    Boolean,
    Branch,
    Finite,
    Goal,
    Null,
    Numbers,
    Objects,
    Shape,
    Strings,
    located,
    pointer_of,
)
from infernix_plugin.grammar.json_schema.spacing import spaced
from infernix_plugin.grammar.json_schema.strings import language
from infernix_plugin.grammar.options import GrammarOptions

_DIGITS = repeat(charset([(0x30, 0x39)]), 1)
_READABLE = {
    "null": Literal("null"),
    "boolean": alt(Literal("true"), Literal("false")),
    "number": seq(
        optional(Literal("-")),
        alt(Literal("0"), seq(charset([(0x31, 0x39)]), optional(_DIGITS))),
        optional(seq(Literal("."), _DIGITS)),
        optional(seq(chars("eE"), optional(chars("+-")), _DIGITS)),
    ),
}
"""Every text that is read as a JSON value of the type, also those that the grammar of its values does not write."""


def strict_arguments(parameters: str, options: GrammarOptions) -> tuple[Grammar, dict[str, Encoding]]:
    """The grammar of all argument lists that satisfy the schema, in declared order, and how each value is written.

    Raises:
        ConstraintError: as for a schema; also if the arguments are not one closed object, if it could not be told
            from the text what type a value has, or if a value has no written form. Located by JSON Pointer.
    """
    encodings: dict[str, Encoding] = {}
    grammar = json_schema.lower(parameters, options, partial(_StrictArguments, encodings))
    if grammar.unique is not None:
        raise UnsupportedSchema(
            "uniqueItems is not supported in the arguments of a strict tool",
            location=ROOT,
            hint="give the items an enum of a few values, or set maxItems to 1",
        )
    return spaced(grammar), encodings


class _StrictArguments(Lowering):
    def __init__(self, encodings: dict[str, Encoding], reducer: Reducer, options: GrammarOptions) -> None:
        super().__init__(reducer, options)
        self._encodings = encodings

    def root(self) -> Node:
        """The arguments, each on its lines, and the end of the function."""
        branch = self._closed_object()
        parts = []
        for name in branch.names:
            if any(char in name for char in UNNAMEABLE) or not name:
                raise UnsupportedSchema(
                    f"An argument of a tool cannot have a name that is empty or holds a line break or {'>'!r}",
                    location=f"{ROOT}/properties",
                )
            goal = self._reducer.member(branch, name) or (child(ROOT, "properties", name),)  # without demands: no place
            with located(goal):
                value = self._value(name, goal)
            parts.append((seq(argument_heading(name), value), name in branch.required))
        most = len(parts) if branch.maximum is None else branch.maximum
        if branch.minimum > len(branch.required) or most < len(parts):
            return self._counted(parts, branch.minimum, most)
        return seq(*(part if required else optional(part) for part, required in parts), FUNCTION_ENDING)

    def _counted(self, parts: list[tuple[Node, bool]], minimum: int, maximum: int) -> Node:
        """So many of the arguments; a rule says what may follow behind each of them and a number written before."""
        after: list[Node] = [
            FUNCTION_ENDING if minimum <= written <= maximum else NEVER for written in range(len(parts) + 1)
        ]
        for index, (part, required) in reversed(list(enumerate(parts))):
            argument = self._named(f"argument{index}", part)
            before: list[Node] = []
            for written in range(index + 1):
                given = seq(argument, after[written + 1])
                body = given if required else alt(given, after[written])
                before.append(body if body == NEVER else self._named(f"arguments{index}_{written}", body))
            after = before
        return after[0]

    def _watched_array(self, name: str, branch: Arrays, goal: Goal) -> Node:
        raise UnsupportedSchema(
            "uniqueItems is not supported in a strict tool unless the items are from a short list of values",
            location=pointer_of(goal),
            hint="give items a short enum, or drop uniqueItems",
        )

    def _closed_object(self) -> Objects:
        shape = self._reducer.shape((ROOT,))
        if not shape:
            raise UnsatisfiableConstraint("No arguments satisfy the schema", location=ROOT)
        if len(shape) != 1 or not isinstance(shape[0], Objects):
            raise UnsupportedSchema(
                "The arguments of a strict tool must be one object",
                location=ROOT,
                hint="give the root the type object, without alternatives",
            )
        branch = shape[0]
        if self._undeclared(branch) != NEVER:
            raise UnsupportedSchema(
                "The arguments of a strict tool must be a closed list of names",
                location=ROOT,
                hint="set additionalProperties to false",
            )
        if branch.some or branch.last:
            raise UnsupportedSchema(
                "Conditions on the presence of arguments are not supported in a strict tool",
                location=ROOT,
                hint="list the names that must be present in required",
            )
        return branch

    def _value(self, name: str, goal: Goal) -> Node:
        shape = self._reducer.shape(goal)
        texts = tuple(branch for branch in shape if branch.kind == "string")
        others = tuple(branch for branch in shape if branch.kind != "string")
        if texts == (UNCONSTRAINED["string"],) and not others:
            self._encodings[name] = TEXT
            return ANY_TEXT_VALUE
        strings = alt(*(self._text(branch, goal) for branch in texts))
        if strings == NEVER:
            if self._reducer.may_hold(texts):
                raise UnsupportedSchema(
                    "The only strings that are allowed hold the line that ends a value, so they cannot be written",
                    location=pointer_of(goal),
                )
            self._encodings[name] = Encoding(Written.JSON, frozenset(branch.kind for branch in others))
            return json_value(self.value(goal))
        kinds = frozenset(branch.kind for branch in shape)
        self._encodings[name] = Encoding(Written.DECIDED_AT_END, kinds) if others else TEXT
        values = alt(strings, self._scalars(strings, others, goal)) if others else strings
        return text_value(values, may_hold_end=any(isinstance(branch, Strings) for branch in texts))

    def _text(self, branch: Branch, goal: Goal) -> Node:
        """The strings of one branch that can be written."""
        if isinstance(branch, Finite):
            return alt(*(Literal(value) for value in self._reducer.membership.values(branch) if VALUE_END not in value))
        if not isinstance(branch, Strings):
            raise self._ambiguous(goal)
        minimum, maximum = self._counts(branch, goal)
        if not self._reducer.may_match(branch):
            return NEVER
        texts = language(replace(branch, minimum=minimum, maximum=maximum))
        return texts if is_writable(texts) else NEVER

    def _scalars(self, strings: Node, others: Shape, goal: Goal) -> Node:
        """The JSON texts of the other types; each text must be of one type only."""
        texts = alt(*(self._scalar(branch, goal) for branch in others))
        try:
            if Intersection([strings, alt(*(_READABLE[branch.kind] for branch in others))]).is_empty():
                return texts
        except Undecided:
            raise ConstraintTooLarge(
                "It takes too many states to tell the strings from the other values", location=pointer_of(goal)
            ) from None
        raise self._ambiguous(goal)

    def _scalar(self, branch: Branch, goal: Goal) -> Node:
        match branch:
            case Null():
                return Literal("null")
            case Boolean():
                return alt(Literal("true"), Literal("false"))
            case Numbers():
                number = self._number(branch, goal)
                return number.item if isinstance(number, Lexeme) else number
            case Finite(kind) if kind in ("number", "boolean", "null"):
                return alt(*(json_schema.values.literal(value) for value in self._reducer.membership.values(branch)))
        raise self._ambiguous(goal)

    @staticmethod
    def _ambiguous(goal: Goal) -> UnsupportedSchema:
        return UnsupportedSchema(
            "A string or a value of another type: the written form of a call cannot tell which it is",
            location=pointer_of(goal),
            hint="use one type, or list strings in an enum that are not JSON texts of the other types",
        )
