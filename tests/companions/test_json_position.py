"""The followed JSON position against a parser and a direct search for equal items."""

import itertools
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.places import UNWATCHED, Place
from infernix_plugin.matching.companions.identity import may_become, number_identity
from infernix_plugin.matching.companions.position import Position, Text
from infernix_plugin.matching.companions.vocabulary import Vocabulary
from infernix_plugin.matching.domain import TokenDomain
from tests.oracles.unique_items import as_floats, repeats

EVERYWHERE = (Place(unique=True, supply=1 << 20, rest=0, undeclared=0),)
"""Every array, however deep, has unique items."""
NESTED = (
    Place(members={"a": 1}, undeclared=2, rest=0),
    Place(unique=True, supply=1 << 20, positions=(UNWATCHED, 2), rest=UNWATCHED),
    Place(unique=True, supply=1 << 20, rest=UNWATCHED),
)
"""Unique: the array ``a``, its second item, and every other member of the root or of the root's items."""

NUMBERS = ["0", "-0", "1", "1.0", "1e0", "10E-1", "0.1", "0.10000000000000001", "12", "9007199254740993"]
STRINGS = ['""', '"a"', '"\\u0061"', '"ab"', '"é"', '"\\u00e9"', '"\\""', '"\\\\"', '"1"', '"true"', '"[1,"']
NAMES = ['"a"', '"b"', '"\\u0062"', '"c"']
spaces = st.sampled_from(["", "", "", " ", "\n\t"])


@st.composite
def arrays(draw: Any, inner: Any) -> str:
    items = draw(st.lists(inner, max_size=4))
    return "[" + draw(spaces) + ",".join(draw(spaces) + item + draw(spaces) for item in items) + "]"


@st.composite
def objects(draw: Any, inner: Any) -> str:
    members = draw(st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3))
    space = draw(spaces)
    return "{" + space + ",".join(f"{space}{name}{space}:{value}{space}" for name, value in members) + "}"


texts = st.recursive(
    st.sampled_from(["true", "false", "null", *NUMBERS, *STRINGS]),
    lambda inner: arrays(inner) | objects(inner),
    max_leaves=12,
)
containers = arrays(texts) | objects(texts)


def followed(places: tuple[Place, ...], text: str, cuts: list[int] = []) -> Position | None:  # noqa: B006
    data = text.encode()
    follower = Text(places)
    position: Position | None = follower.start()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        position = position and follower.advance(position, data[start:end])
    return position


@pytest.mark.parametrize("places", [EVERYWHERE, NESTED])
@settings(max_examples=250, deadline=None)
@given(text=containers)
def test_a_text_goes_through_exactly_if_no_watched_array_repeats_an_item(places: tuple[Place, ...], text: str) -> None:
    if _replaces_a_name(text):  # an item may be refused for an array that a later member of the same name replaces
        assert repeats(places, as_floats(text)) <= (followed(places, text) is None)
    else:
        assert (followed(places, text) is None) == repeats(places, as_floats(text))


def _replaces_a_name(text: str) -> bool:
    found = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    json.loads(text, object_pairs_hook=members)
    return any(found)


@settings(max_examples=200, deadline=None)
@given(text=containers, cuts=st.lists(st.integers(0, 200), max_size=6))
def test_how_a_text_is_cut_into_tokens_does_not_matter(text: str, cuts: list[int]) -> None:
    assert followed(NESTED, text, cuts) == followed(NESTED, text)
    assert followed(EVERYWHERE, text, [*range(200)]) == followed(EVERYWHERE, text)


@settings(max_examples=200, deadline=None)
@given(items=st.lists(texts, min_size=1, max_size=4))
def test_no_prefix_is_refused_before_the_repetition_is_complete(items: list[str]) -> None:
    """It is refused with the byte that ends the repeated item, which of a number is the one behind it."""
    text = "[" + ",".join([*items, items[0]]) + "]"
    whole = "[" + ",".join(items) + "]"
    if repeats(EVERYWHERE, as_floats(whole)) or _replaces_a_name(text):
        return
    end = len(text.encode()) - 1
    ended_by_itself = items[0][-1] not in "0123456789"
    last = end - 1 if ended_by_itself else end
    assert followed(EVERYWHERE, text.encode()[:last].decode()) is not None
    assert followed(EVERYWHERE, text.encode()[: last + 1].decode()) is None


@settings(max_examples=200, deadline=None)
@given(text=containers)
def test_before_a_repetition_is_complete_no_position_is_calm(text: str) -> None:
    """Calm means that no item can end with a repetition unless another one begins first; for canonical escapes."""
    for escape in ("\\u0061", "\\u0062", "\\u00e9"):
        text = text.replace(escape, json.loads(f'"{escape}"'))
    data, follower = text.encode(), Text(EVERYWHERE)
    position = follower.start()
    for byte in data:
        after = follower.advance(position, bytes([byte]))
        if after is None:
            assert not position.calm
            return
        position = after


ROOMY = frozenset(["object", "array", "string", "number", "boolean", "null"])


@pytest.mark.parametrize("roomy", [frozenset(), ROOMY, frozenset(["string", "object"])])
@pytest.mark.parametrize("supply", [1 << 20, 3])
@settings(max_examples=25, deadline=None)
@given(text=arrays(texts))
def test_at_calm_positions_only_some_tokens_have_to_be_looked_at(roomy: frozenset[str], supply: int, text: str) -> None:
    """All others neither repeat an item nor lead to where nothing else may be left."""
    for escape in ("\\u0061", "\\u0062", "\\u00e9"):
        text = text.replace(escape, json.loads(f'"{escape}"'))
    items = text[1:-1].strip() or "0"
    written = f"[{items},{text},{items}]".encode()
    follower = Text((Place(unique=True, supply=supply, roomy=roomy, rest=0, undeclared=0),))
    position: Position | None = follower.start()
    for start in range(min(len(written), 60)):
        if position is None:
            break
        if position.calm and not position.doubtful:
            pieces = [written[start:end] for end in range(start + 1, min(len(written), start + 25) + 1)]
            vocabulary = Vocabulary(TokenDomain(pieces))
            everything = np.full(1, -1, dtype=np.int32)
            looked_at = vocabulary.crossing(position.reach, position.crossing).within(everything)
            for token, piece in enumerate(pieces):
                after = follower.advance(position, piece)
                if token not in looked_at:
                    assert after is not None, (written[:start], piece)
                    assert not after.doubtful, (written[:start], piece)
        position = follower.advance(position, written[start : start + 1])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1", "1.0"),
        ("1", "1e0"),
        ("0", "-0.0"),
        ("0.1", "0.10000000000000001"),
        ("9007199254740992", "9007199254740993"),
        ('{"a":1,"b":[2]}', '{"b": [2.0], "a": 1}'),
        ('"é"', '"\\u00e9"'),
        ('{"a":2,"a":1}', '{"a":1}'),
        ('{"a":1}', '{"a":2, "b":3, "b":4, "a":1}'),
    ],
)
def test_equal_values_are_equal_however_they_are_written(first: str, second: str) -> None:
    equal = as_floats(first) == as_floats(second)
    assert (followed(EVERYWHERE, f"[{first},{second} ,7]") is None) == equal
    assert (followed(EVERYWHERE, f"[{second},{first} ,7]") is None) == equal


@pytest.mark.parametrize(
    ("first", "second"), [("1", '"1"'), ("1", "true"), ("0", "false"), ("[]", "{}"), ("[1]", "1"), ('"true"', "true")]
)
def test_values_of_different_types_differ(first: str, second: str) -> None:
    assert followed(EVERYWHERE, f"[{first},{second}]") is not None


@pytest.mark.parametrize(
    "text", ["}", "[1,", "[1 2", "[,", '{"a"}', "{1", '"\n', "[tru,", "[1-2,", '["\\ud800"', "[] x"]
)
def test_what_is_not_json_is_refused(text: str) -> None:
    whole = followed(EVERYWHERE, text) is None
    assert whole == (text != "[1,")  # which is the beginning of a text


def test_a_text_begins_behind_its_lead() -> None:
    follower = Text(EVERYWHERE)
    position = follower.advance(follower.start(b"\n\n"), b"\n")
    assert position is not None
    assert follower.advance(position, b"[") is None
    assert follower.advance(position, b"\n[1,1.0,") is None
    assert follower.advance(position, b"\n[1,2,") is not None


@settings(max_examples=300, deadline=None)
@given(
    text=st.from_regex(r"\A-?(0|[1-9][0-9]{0,16})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?\Z"),
    nudge=st.integers(-2, 2),
    data=st.data(),
)
def test_a_beginning_of_a_number_may_become_that_number(text: str, nudge: int, data: Any) -> None:
    number = number_identity(text.encode())
    assert number is not None
    for end in range(1, len(text) + 1):
        assert may_become(text[:end].encode(), number)
    # Another spelling of the same binary64 number: 17 digits, a bit beside the exact value.
    mantissa, _, exponent = f"{abs(number):.16e}".partition("e")
    digits = str(int(mantissa.replace(".", "")) + nudge)
    other = f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:]}e{int(exponent) + len(digits) - 17}"
    if number and Fraction(float(other)) == Fraction(number):
        for end in range(1, len(other) + 1):
            assert may_become(other[:end].encode(), number), other


def test_a_number_with_other_digits_cannot_become_it() -> None:
    assert not may_become(b"3", 12.0)
    assert not may_become(b"125", 12.0)
    assert not may_become(b"-1", 12.0)
    assert may_become(b"-1", -12.0)
    assert may_become(b"0.0", 12.0)  # a leading zero is no digit, an exponent may follow
