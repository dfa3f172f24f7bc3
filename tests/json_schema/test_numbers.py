"""Number grammars against exact arithmetic."""

import json
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.ir import NEVER, Grammar, Lexeme
from infernix_plugin.grammar.json_schema.numbers import any_integer, any_number, between
from infernix_plugin.grammar.json_schema.shape import Bound, Numbers
from tests.oracles.ir_matcher import in_language
from tests.oracles.ir_sampler import Sampler

DIGITS = 17


def interval(low=None, high=None, *, integer=False, open_low=False, open_high=False):
    return Numbers(
        integer,
        None if low is None else Bound(exact(low), open_low),
        None if high is None else Bound(exact(high), open_high),
    )


def exact(number):
    return Fraction(number) if abs(number) > 2**53 else Fraction(str(number))


def holds(numbers, text):
    """Whether the decimal as written is inside, and the binary64 number it reads as, for bounds read likewise."""
    written = Fraction(text)
    read = written if text.lstrip("-").isdigit() else Fraction(float(text))
    for bound, sign in ((numbers.lower, 1), (numbers.upper, -1)):
        if bound is None:
            continue
        pairs = [(written, bound.value), (read, Fraction(float(bound.value)))]
        if bound.value.denominator == 1:
            pairs.append((read, bound.value))
        for value, limit in pairs:
            if sign * value < sign * limit or (bound.exclusive and value == limit):
                return False
    return not numbers.integer or written.denominator == 1


@settings(deadline=None)
@given(low=st.integers(-(10**6), 10**6), width=st.integers(0, 5000), text=st.integers(-(10**6), 10**6))
def test_integer_intervals_hold_exactly_their_integers(low, width, text):
    node = between(interval(low, low + width, integer=True), DIGITS)
    for value in (text, low, low + width, low - 1, low + width + 1, low + width // 2):
        assert in_language(node, str(value)) == (low <= value <= low + width)


@pytest.mark.parametrize("text", ["-0", "00", "01", "+1", "1.0", "1e3", "", "-"])
def test_integers_have_one_spelling(text):
    assert not in_language(any_integer(), text)


@pytest.mark.parametrize("value", [0, 9, 10, -1, 2**63 - 1, -(2**63), 10**18, 9223372036854775799])
def test_integers_reach_int64(value):
    assert in_language(any_integer(), str(value))
    assert in_language(any_number(DIGITS), str(value)) == (value != -(2**63))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**19])
def test_integers_stop_at_int64(value):
    assert not in_language(any_integer(), str(value))


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_binary64_number_can_be_written(value):
    assert in_language(any_number(DIGITS), json.dumps(value))


@pytest.mark.parametrize(
    "text", ["1" * 60, "0." + "1" * 24, "1e1000", "1e309", "1.8e308", "9" * 17 + "e292", ".5", "1.", "1e"]
)
def test_numbers_are_bounded(text):
    assert not in_language(any_number(DIGITS), text)


def test_every_sampled_number_is_finite():
    sampler = Sampler(Grammar({"root": Lexeme(any_number(DIGITS))}), random.Random(1))
    for _ in range(3000):
        assert math.isfinite(json.loads(sampler.draw()))


finite = (
    st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.integers(-1000, 1000)
    | st.decimals(-10, 10, places=3)
)


@settings(max_examples=150, deadline=None)
@given(
    ends=st.tuples(st.none() | finite, st.none() | finite),
    opened=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
    nearby=st.lists(st.floats(-20, 20) | st.integers(-1200, 1200), min_size=3, max_size=3),
)
def test_number_intervals(ends, opened, seed, nearby):
    low, high = ends
    if low is not None and high is not None and low > high:
        low, high = high, low
    numbers = interval(low, high, open_low=opened[0], open_high=opened[1])
    node = between(numbers, DIGITS)
    if node != NEVER:
        sampler = Sampler(Grammar({"root": node}), random.Random(seed))
        for _ in range(20):
            text = sampler.draw()
            json.loads(text)
            assert holds(numbers, text), text
    edges = [float(end) for end in ends if end is not None]
    around = [math.nextafter(edge, to) for edge in edges for to in (-math.inf, edge, math.inf)]
    for value in [*nearby, *around]:
        text = json.dumps(value)
        if math.isfinite(value) and text != "-0.0" and abs(value) < 2**63:
            assert in_language(node, text) == holds(numbers, text), text


@pytest.mark.parametrize(
    ("numbers", "inside", "outside"),
    [
        (interval(0, open_low=True), ["0.1", "5e-324", "1", "1e300"], ["0", "0.0", "-1", "1e-400", "0e5"]),
        (interval(1, 5), ["1", "5", "5.0", "4.999", "1e0", "5.000e+0"], ["5.7", "0.9", "5.1e0", "5.0000001"]),
        (interval(high=1, open_high=True), ["0.9999999999999999", "-7"], ["1", "0.99999999999999999", "1.0"]),
        (interval(0.1, 0.1), ["0.1", "0.10", "1e-1", "1.0e-01"], ["0.10000000000000001", "0.2"]),
        (interval(-5, -3), ["-5", "-3.5", "-3.0"], ["-2.9", "-5.1", "3"]),
        (interval(high=18446744073709551615), ["9223372036854775807", "1e19"], ["1.8446744073709552e19", "1e20"]),
    ],
)
def test_bounds_hold_for_the_text_and_for_what_is_read_back(numbers, inside, outside):
    node = between(numbers, DIGITS)
    assert [text for text in inside if not in_language(node, text)] == []
    assert [text for text in outside if in_language(node, text)] == []


@pytest.mark.parametrize(
    "numbers",
    [interval(3, 2), interval(2, 3, integer=True, open_low=True, open_high=True), interval(1, 1, open_low=True)],
)
def test_contradicting_bounds_are_empty(numbers):
    assert numbers.empty
