"""What the value of a keyword has to be: counts, bounds, names, expressions, lists of schemas."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from infernix_plugin.errors import ConstraintTooLarge, InvalidRegex, UnsupportedSchema, excerpt
from infernix_plugin.grammar import regex
from infernix_plugin.grammar.budget import CompileTimeout
from infernix_plugin.grammar.ir import Node
from infernix_plugin.grammar.json_schema.json_value import Json, Number, child
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import Bound, Pattern
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.plain import plainer

_INT64 = range(-(2**63), 2**63)


def count(value: Json, location: str) -> int:
    """A number of characters, items or members."""
    number = value.value if isinstance(value, Number) else None
    if number is None or number.denominator != 1 or number < 0:
        fail("The value must be a non-negative integer", location)
    return int(number)


def bound(value: Json, location: str) -> Bound:
    """The bound as every parser understands it: integers exact, other large numbers as binary64 has them."""
    if not isinstance(value, Number):
        fail("The value must be a number", location)
    exact = value.value
    if exact is None or not (value.is_integer_text or survives(value)):
        raise UnsupportedSchema(
            f"The bound {excerpt(value.text)} is not preserved by binary64", location=location, hint="shorten it"
        )
    rounded = not value.is_integer_text and abs(exact) > 2**53
    return Bound(Fraction(float(value.text)) if rounded else exact)


def names_in(value: Json, location: str) -> list[str]:
    """The property names in an array."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        fail("The value must be an array of property names", location)
    return [text(name, child(location, index)) for index, name in enumerate(value)]


def text(value: str, location: str) -> str:
    """``value``, after checking that UTF-8 can carry it."""
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise UnsupportedSchema("An unpaired surrogate cannot be generated", location=location)
    return value


def pattern_in(source: str, options: GrammarOptions, location: str) -> Pattern:
    """The strings in which the expression ``source`` is found."""
    try:
        return Pattern(source, _searched(text(source, location), options))
    except CompileTimeout:
        raise
    except (InvalidRegex, ConstraintTooLarge) as error:
        place = f" ({error.location})" if error.location else ""
        kind = ConstraintTooLarge if isinstance(error, ConstraintTooLarge) else UnsupportedSchema
        raise kind(f"The pattern: {error.message}{place}", location=location, hint=error.hint) from error


@lru_cache(maxsize=256)
def _searched(source: str, options: GrammarOptions) -> Node:
    """One node wherever an expression stands, so that what is known of it stays known."""
    return plainer(regex.search(source, options))


def schemas_in(value: Json, location: str) -> list[str]:
    """The pointers of the schemas in an array."""
    if not isinstance(value, list) or not value:
        fail("The value must be a non-empty array of schemas", location)
    return [child(location, index) for index in range(len(value))]


def survives(number: Number) -> bool:
    """Whether a parser that knows int64 and binary64 can print the number again as it is."""
    exact = number.value
    if exact is None:
        return False
    if exact.denominator == 1 and int(exact) in _INT64:
        return True
    return not number.is_integer_text and Number(repr(float(number.text))).value == exact
