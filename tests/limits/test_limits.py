"""Each limit on both sides: what is just allowed is compiled, what is just past it is refused by the limit's name."""

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar.options import GrammarOptions

DOMAIN = TokenDomain([*(bytes([byte]) for byte in range(256)), b"<end>"], control={"<end>": 256}, stop=[256])


@dataclass(frozen=True)
class Side:
    """A limit's value, and a constraint of a given size: the value is the largest size that is allowed."""

    limit: int
    make: Callable[[int], OutputConstraint]


def schema(document: object) -> OutputConstraint:
    return OutputConstraint.json_schema(json.dumps(document))


def nested_arrays(depth: int) -> OutputConstraint:
    document: dict = {}
    for _ in range(depth - 1):
        document = {"items": document}
    return schema(document)


def alternatives(pairs: int) -> OutputConstraint:
    """A schema with so many pairs of alternatives to intersect."""
    return schema({"allOf": [{"enum": [1]}, {"anyOf": [{"type": "integer", "minimum": i} for i in range(pairs)]}]})


SIDES = {
    "max_grammar_bytes": Side(40, lambda size: OutputConstraint.grammar('root ::= "é"'.ljust(size - 1))),
    "max_schema_bytes": Side(40, lambda size: OutputConstraint.json_schema('{"const": "é"}'.ljust(size - 1))),
    "max_regex_bytes": Side(40, lambda size: OutputConstraint.regex("é" + "a" * (size - 2))),
    "max_choices": Side(3, lambda size: OutputConstraint.choice([f"c{i}" for i in range(size)])),
    "max_choice_bytes": Side(9, lambda size: OutputConstraint.choice(["é", "a" * (size - 2)])),
    "max_nesting": Side(20, nested_arrays),
    "max_repetition": Side(50, lambda size: OutputConstraint.regex(f"a{{{size}}}")),
    "max_name_classes": Side(
        4, lambda size: schema({"patternProperties": {f"^{chr(97 + i)}": {"minimum": i} for i in range(size - 1)}})
    ),
    "max_string_states": Side(
        0, lambda size: schema({"patternProperties": {"^a": {"const": 1}, f"^a{{{size}}}b$": {"const": 2}}})
    ),
    "max_count_states": Side(
        0, lambda size: schema({"type": "array", "contains": {"const": 1}, "minContains": size, "maxItems": size})
    ),
    "max_intersections": Side(0, alternatives),
    "max_nodes": Side(0, lambda size: schema({"prefixItems": [{"const": i} for i in range(size)]})),
}
SEARCHED = 24
"""Largest size that is tried where the size in question is not the size of the limit: nodes, states, pairs."""


def refusal(name: str, limit: int, constraint: OutputConstraint) -> str | None:
    compiler = ConstraintCompiler(DOMAIN, options=GrammarOptions(**{name: limit}))
    try:
        compiler.compile(constraint)
    except ConstraintTooLarge as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", [name for name, side in SIDES.items() if side.limit])
def test_just_inside_and_just_past(name: str) -> None:
    side = SIDES[name]
    assert refusal(name, side.limit, side.make(side.limit)) is None
    message = refusal(name, side.limit, side.make(side.limit + 1))
    assert message is not None
    assert name in message
    assert str(side.limit) in message


@pytest.mark.parametrize("name", [name for name, side in SIDES.items() if not side.limit])
def test_one_more_is_allowed_by_a_limit_that_is_one_higher(name: str) -> None:
    make = SIDES[name].make
    needed = bisect_left(range(4000), True, lo=1, key=lambda limit: refusal(name, limit, make(SEARCHED)) is None)
    assert 1 < needed < 4000
    message = refusal(name, needed - 1, make(SEARCHED))
    assert message is not None
    assert name in message
    assert str(needed - 1) in message
    assert refusal(name, needed, make(SEARCHED + 1)) is not None or name == "max_string_states"
