"""The text around names and values in a call, and the text of a value that is written without quotes.

::

    <tool_call>
    <function=NAME>
    <parameter=NAME>
    VALUE
    </parameter>
    </function>
    </tool_call>

Every line break is there exactly once. The first and the last line are tokens where the vocabulary has them; a value
may hold anything but :data:`VALUE_END`, which ends at its first occurrence.
"""

from __future__ import annotations

from infernix_plugin.framing.tools.contract import UNNAMEABLE
from infernix_plugin.grammar.ir import (
    EPSILON,
    And,
    Lexeme,
    Literal,
    Node,
    alt,
    chars,
    complement,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema.derivatives import Intersection, Undecided

CALL_OPEN = "<tool_call>"
CALL_CLOSE = "</tool_call>"
BETWEEN_CALLS = "\n"
FUNCTION_OPEN = "\n<function="
FUNCTION_END = "</function>\n"
PARAMETER_OPEN = "<parameter="
NAME_END = ">\n"
VALUE_END = "\n</parameter>"
LINE_END = "\n"

_LINE = repeat(complement(chars(VALUE_END[0])))


def _line_without(beginning: str) -> Node:
    """A line that does not begin with a text, character by character: complements are slow to mask."""
    node: Node = EPSILON
    for char in reversed(beginning):
        other = seq(complement(chars(char + VALUE_END[0])), _LINE)
        node = optional(other) if node == EPSILON else optional(alt(other, seq(Literal(char), node)))
    return node


_WRITABLE = seq(_LINE, repeat(seq(Literal(VALUE_END[0]), _line_without(VALUE_END[1:]))))
"""Every text that does not hold :data:`VALUE_END`, whose line break is its first character and comes only once."""

_MOST_STATES = 256
"""How far strings are searched for one that can be written."""

# Every line is one terminal, so that a longest-match lexer never has to tell it from the text of a value.


def function_heading(name: str) -> Node:
    """The line that begins a call."""
    return Lexeme(Literal(f"{FUNCTION_OPEN}{name}{NAME_END}"))


def argument_heading(name: str) -> Node:
    """The line that begins an argument."""
    return Lexeme(Literal(f"{PARAMETER_OPEN}{name}{NAME_END}"))


FUNCTION_ENDING = Lexeme(Literal(FUNCTION_END))
"""The line that ends the arguments."""


def json_value(value: Node) -> Node:
    """The JSON texts of ``value``, which hold no line break, up to the end of their argument."""
    return seq(value, Lexeme(Literal(VALUE_END + LINE_END)))


def text_value(language: Node, *, may_hold_end: bool = True) -> Lexeme:
    """The strings of a regular language up to the end of their argument.

    Args:
        language: over the characters of the strings.
        may_hold_end: whether some of them may contain :data:`VALUE_END`, and then have no written form.
    """
    return Lexeme(seq(And((language, _WRITABLE)) if may_hold_end else language, Literal(VALUE_END + LINE_END)))


def is_writable(language: Node) -> bool:
    """Whether some string of a regular language can be written, or it would take too many states to tell."""
    try:
        return not Intersection([language, _WRITABLE], most_states=_MOST_STATES).is_empty()
    except Undecided:
        return True


ANY_TEXT_VALUE = text_value(_WRITABLE, may_hold_end=False)
"""Any string that can be written. One node, so that what is known of it stays known."""

ANY_ARGUMENT = Lexeme(
    seq(Literal(PARAMETER_OPEN), repeat(complement(chars(UNNAMEABLE)), 1), Literal(NAME_END), ANY_TEXT_VALUE.item)
)
"""An argument of any name that can be written, with any text."""
