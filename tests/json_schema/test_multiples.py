"""Multiples against exact arithmetic."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.json_schema.multiples import multiples, stepped
from infernix_plugin.grammar.json_schema.shape import Bound, Numbers
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import in_language, matches

STEPS = ["1", "2", "3", "4", "5", "6", "8", "12", "15", "16", "25", "100", "1000"]
STEPS += ["0.01", "0.05", "0.25", "0.5", "1.5", "0.03", "0.125", "0.015", "2.5", "0.000001"]

CASES = [
    # schema, texts in the language, texts outside it
    ({"type": "integer", "multipleOf": 5}, ["0", "5", "-10", "100000"], ["1", "5.0", "1e1"]),
    ({"type": "integer", "multipleOf": 12, "minimum": 1}, ["12", "144", "9000"], ["0", "1", "-12", "14"]),
    ({"type": "integer", "multipleOf": 7}, ["7", "0", "-14", "1001"], ["1", "1002"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.07", "0.1", "3", "-2.25", "0", "1.10"], ["0.001", "1e1", "1.234"]),
    ({"multipleOf": 0.25, "minimum": 0, "maximum": 1e5}, ["0.25", "99999.75", "5"], ["0.3", "-0.25", "1e5"]),
    ({"type": "number", "multipleOf": 2.5, "minimum": 0, "maximum": 10}, ["0", "2.5", "10"], ["1", "-2.5", "12.5"]),
    ({"type": "integer", "multipleOf": 11, "minimum": 0, "maximum": 1000}, ["0", "11", "990"], ["1", "1001"]),
    ({"type": "integer", "multipleOf": 6, "not": {"multipleOf": 4}}, ["6", "18", "-6"], ["12", "0", "3"]),
    ({"type": "integer", "multipleOf": 0.5}, ["1", "2"], ["0.5"]),
    ({"type": "number", "multipleOf": 1}, ["1", "2"], ["0.5"]),
    ({"enum": [1, 2, 3, 4.5], "multipleOf": 1.5}, ["3", "4.5"], ["1", "2"]),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), CASES)
def test_schemas(schema, inside, outside):
    grammar = lower(json.dumps(schema), GrammarOptions())
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


@settings(max_examples=400, deadline=None)
@given(
    step=st.sampled_from(STEPS).map(Fraction),
    places=st.integers(0, 5),
    digits=st.integers(0, 10**8),
    factor=st.none() | st.integers(0, 5000),
    sign=st.sampled_from(["", "-"]),
)
def test_decimals_match_exactly_when_they_are_multiples(step, places, digits, factor, sign):
    if factor is not None:
        scaled = step * factor * 10**places
        digits = int(scaled) if scaled.denominator == 1 else digits
    text = str(digits).zfill(places + 1)
    text = sign + (f"{text[:-places]}.{text[-places:]}" if places else text)
    language = multiples(step)
    assert language is not None
    assert in_language(language, text) == ((Fraction(text) / step).denominator == 1)


@settings(max_examples=200, deadline=None)
@given(
    step=st.sampled_from(["2", "0.5", "11", "0.01", "6"]).map(Fraction),
    other=st.none() | st.sampled_from(["1", "4", "0.5"]).map(Fraction),
    low=st.integers(-30, 30),
    width=st.integers(0, 3000),
    value=st.integers(-3000, 3000).map(lambda scaled: Fraction(scaled, 20)),
)
def test_branches_match_exactly_their_numbers(step, other, low, width, value):
    others = frozenset() if other is None else frozenset([other])
    branch = Numbers(False, Bound(Fraction(low)), Bound(Fraction(low + width)), frozenset([step]), others)
    node = stepped(branch, 17)
    text = f"{float(value):.2f}".rstrip("0").rstrip(".")
    if node is None:
        assert step == 11
    elif text != "-0":
        assert in_language(node, text) == (not branch.empty and value in branch), text


@pytest.mark.parametrize("step", ["9", "11", "1e-12", "1125899906842624", "100000000000000003"])
def test_what_is_too_large_is_said_so_quickly(step):
    assert multiples(Fraction(step)) is None
