"""Emptiness of regular languages without a list of strings, against a brute-force oracle and the plain intersection."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.grammar import regex
from infernix_plugin.grammar.ir import Literal, Not, alt
from infernix_plugin.grammar.json_schema.derivatives import Derivatives, Intersection
from infernix_plugin.grammar.options import GrammarOptions

PATTERNS = ["^[ab]$", "^a?b?$", "^a", "b$", "^(ab|ba)$", "^[^ab]?$", "^$", "^[ab]{2}$"]
TEXTS = ["".join(letters) for length in range(4) for letters in product("ab", repeat=length)]
LANGUAGES = {pattern: regex.search(pattern, GrammarOptions()) for pattern in PATTERNS}
SHARED = Derivatives()

lists = st.lists(st.sampled_from(TEXTS), max_size=6, unique=True)


@given(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3), st.lists(lists, min_size=1, max_size=4))
def test_emptiness_without_excluded_strings(patterns, exclusions):
    languages = [LANGUAGES[pattern] for pattern in patterns]
    asked_again = Intersection(languages, SHARED)
    for excluded in exclusions:
        without = [Not(alt(*map(Literal, excluded)))] if excluded else []
        assert asked_again.is_empty(excluded) == Intersection([*languages, *without]).is_empty()
        assert asked_again.is_empty(excluded) <= all(
            text in excluded or text not in asked_again for text in (*TEXTS, "c")
        )


def test_a_finite_language_is_used_up():
    two = Intersection([LANGUAGES["^[ab]$"]])
    assert not two.is_empty(["a"])
    assert not two.is_empty(["b"])
    assert two.is_empty(["b", "x", "a"])
    assert not two.is_empty()
