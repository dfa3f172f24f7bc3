"""Assertions of a searched expression: Python's ``re`` as the oracle over every short text."""

import itertools
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import InvalidRegex
from infernix_plugin.grammar import regex
from infernix_plugin.grammar.json_schema.derivatives import Intersection
from infernix_plugin.grammar.options import GrammarOptions

OPTIONS = GrammarOptions()
TEXTS = ["".join(letters) for length in range(5) for letters in itertools.product("ab-", repeat=length)]


def found(pattern, texts=TEXTS):
    language = Intersection([regex.search(pattern, OPTIONS)])
    return [text for text in texts if text in language]


def expected(pattern, texts=TEXTS):
    """What Python finds; there ``$`` also stands before a last line feed, and ``\\B`` not in the empty text."""
    return [text for text in texts if re.search(pattern.replace("$", r"\Z").replace(r"\B", r"(?!\b)"), text)]


atoms = st.sampled_from(["a", "b", "-", "ab", "[ab]", "[^a]", ".", "^", "$", r"\b", r"\B", "(?<=a)", "(?<!ab)"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda one: f"(?={one})"),
        inner.map(lambda one: f"(?!{one})"),
        st.tuples(inner, st.sampled_from(["?", "{1,2}", "*"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@settings(max_examples=250, deadline=None)
@given(pattern=patterns)
def test_random_assertions(pattern):
    try:
        mine = found(pattern)
    except InvalidRegex:
        assume(False)
    assert mine == expected(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?!a|b-).+$",
        "^(?=.*a)(?=.*b).{2,}$",
        "(^a|b$)",
        "^(a$|b)",
        "(?:^|-)a(?:$|-)",
        "^(?!-)[ab-]+(?<!-)$",
        r"\bab\b",
        "^(?!.*--)a",
        "(?!^a)b",
        "a(?=b$)",
        "^(?:(?!ab)[ab])$",
    ],
)
def test_assertions_of_real_schemas(pattern):
    assert found(pattern) == expected(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?:(?!ab)[ab])*b", "inside a loop"),
        ("(?=a(?<=aa))", "looks behind"),
        ("(?<=^a)b", "inside a lookbehind"),
        ("(?:a|^){200}", "too many alternatives"),
        (r"(a)\1", "back-reference"),
        ("(?=a)*", "nothing to repeat"),
    ],
)
def test_what_is_not_worked_out_is_refused(pattern, reason):
    with pytest.raises(InvalidRegex, match=reason):
        regex.search(pattern, OPTIONS)


@pytest.mark.parametrize("pattern", ["(?!a)b", "(^a|b)", r"\bb", "(?<=a)b"])
def test_a_whole_match_keeps_to_its_subset(pattern):
    with pytest.raises(InvalidRegex):
        regex.parse(pattern, OPTIONS)
