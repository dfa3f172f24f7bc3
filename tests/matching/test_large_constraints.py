"""Constraints that are large in a way that native code cannot take are refused; the process lives."""

import json

import pytest

from infernix_plugin import ConstraintCompiler, ConstraintTooLarge, OutputConstraint, TokenDomain


@pytest.fixture(scope="module")
def compiler(tiny_model) -> ConstraintCompiler:
    return ConstraintCompiler(TokenDomain.from_pretrained(tiny_model), max_compile_seconds=300.0)


def members(count: int, *, closed: bool) -> dict:
    schema = {"type": "object", "properties": {f"p{index}": {"type": "integer"} for index in range(count)}}
    return {**schema, "additionalProperties": False} if closed else schema


@pytest.mark.parametrize(
    "schema",
    [
        members(3000, closed=True),
        members(3000, closed=False),
        {"type": "array", "prefixItems": [{"type": "integer"}] * 5000},
        {"enum": list(range(100_000))},
    ],
    ids=["closed object", "open object", "positions", "enum"],
)
def test_past_the_limit_of_an_engine_is_a_refusal(compiler, schema):
    with pytest.raises(ConstraintTooLarge, match=r"limit|longest chain"):
        compiler.compile(OutputConstraint.json_schema(json.dumps(schema)))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (members(900, closed=True), b'{"p0":1,"p899":2}'),
        (members(900, closed=False), b'{"p0":1,"other":{}}'),
        ({"anyOf": [members(900, closed=True), members(950, closed=True)]}, b'{"p949":7}'),
        ({"type": "array", "prefixItems": [{"type": "integer"}] * 900, "items": False}, b"[1,2]"),
    ],
    ids=["closed object", "open object", "two objects", "positions"],
)
def test_below_the_limit_it_works(compiler, schema, text):
    session = compiler.compile(OutputConstraint.json_schema(json.dumps(schema))).session()
    domain = compiler.domain
    for byte in text:
        assert session.accept(domain.byte_token(byte))
    assert session.complete


@pytest.mark.parametrize("part", ["[ab]?", "(ab|c)?", "[ab]?b*"])
def test_a_row_of_five_thousand_optional_parts_costs_nothing_or_is_refused(compiler, part):
    # Written out, 5,000 optional parts have 12 million ways from one to another, and every mask looks at them all.
    constraint = OutputConstraint.regex(part * 5000)
    if part == "[ab]?b*":
        with pytest.raises(ConstraintTooLarge, match="limit"):
            compiler.compile(constraint)
        return
    session = compiler.compile(constraint).session()
    for byte in b"abab" * 100:
        assert session.accept(compiler.domain.byte_token(byte)) or (part != "[ab]?" and byte == ord("a"))
    assert session.complete
