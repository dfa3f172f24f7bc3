"""Cases where two languages were taken for one: complements, alternatives in intersections, options told apart."""

import json

import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.errors import InvalidContinuation, UnsatisfiableConstraint

BYTES = TokenDomain([*(bytes([byte]) for byte in range(256)), b"<end>"], stop=[256])
NOT_A = {"type": "string", "pattern": "^(?!a)"}
TWICE_ANY = {"oneOf": [{}, {}]}
LATE = [{}, {}, {"anyOf": [{"type": "string"}]}]


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    return ConstraintCompiler(BYTES)


def accepts(compiler, schema, instance) -> bool:
    compiled = compiler.compile(OutputConstraint.json_schema(json.dumps(schema)))
    try:
        return compiled.session(prefix=json.dumps(instance).encode()).complete
    except InvalidContinuation:
        return False


def test_a_pattern_that_is_a_complement_is_not_its_own_complement(compiler):
    negated = {"not": NOT_A}
    for instance in ("aa", "b", ""):
        expected = not instance.startswith("a")
        assert accepts(compiler, negated, instance) is not expected
        assert accepts(compiler, NOT_A, instance) is expected


@pytest.mark.parametrize(
    ("schema", "instance", "valid"),
    [
        ({"if": {"pattern": "^(?!$)"}, "else": {"type": "string"}}, "", True),
        ({"oneOf": [{"pattern": "^(?!$)"}, {"maxLength": 0}]}, "", True),
        ({"type": "string", "pattern": "(?=(?!c)|b)a"}, "b", False),
        ({"type": "string", "pattern": "(?=(?!c)|b)a"}, "a", True),
        ({"type": "string", "pattern": "^(?=(?!c)|b)a$"}, "b", False),
        ({"type": "string", "pattern": "^(?=b|(?!c))a"}, "b", False),
        ({"type": "string", "pattern": "(?=(?!.)|c)c"}, "b", False),
        ({"type": "string", "pattern": "(?=(?!.)|c)c"}, "c", True),
    ],
)
def test_complements_beside_other_strings(compiler, schema, instance, valid):
    assert accepts(compiler, schema, instance) is valid


@pytest.mark.parametrize(
    "context",
    [
        {"if": TWICE_ANY, "then": {"type": "boolean"}},
        {"anyOf": [{"not": TWICE_ANY}, {"type": "boolean"}]},
    ],
)
def test_options_told_apart_are_still_judged_whole(compiler, context):
    # Every value is in the first two options of the outer oneOf, whatever the inner one says.
    with pytest.raises(UnsatisfiableConstraint):
        compiler.compile(OutputConstraint.json_schema(json.dumps(context | {"oneOf": LATE})))


def test_a_request_that_spends_the_lexer_does_not_spend_it_for_others(compiler):
    pattern = "^" + "".join(f"(?=.*{letter})" for letter in "abcdefghijklmnop")
    compiled = compiler.compile(OutputConstraint.json_schema(json.dumps({"type": "string", "pattern": pattern})))
    greedy = compiled.session()
    stopped = next((byte for byte in b'"abcdefghijklmnop' if not greedy.accept(byte)), None)
    assert stopped is None or greedy.engine_error is not None, "the engine's limit is named"
    other = compiled.session()
    assert all(other.accept(byte) for byte in b'"abc')
