"""Choices: exactly the given strings, within their limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import ConstraintTooLarge, InvalidChoice
from infernix_plugin.grammar import choice
from infernix_plugin.grammar.ir import Grammar, Literal
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_oracle import language

OPTIONS = GrammarOptions()


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=4), min_size=1))
def test_exactly_the_choices(choices: list[str]) -> None:
    assert language(Grammar({"root": choice.lower(choices, OPTIONS)}), "ab", 4) == set(choices)


def test_order_and_duplicates_do_not_matter() -> None:
    assert choice.lower(["b", "", "a", "b"], OPTIONS) == choice.lower(["a", "b", ""], OPTIONS)
    assert choice.lower(["a", "a"], OPTIONS) == Literal("a")


@pytest.mark.parametrize(
    ("choices", "location"),
    [([], None), (["a", 1], "[1]"), ([None], "[0]"), (["a", "b", "\ud800"], "[2]"), ([b"a"], "[0]")],
)
def test_faults_are_located(choices: list[str], location: str | None) -> None:
    with pytest.raises(InvalidChoice) as caught:
        choice.lower(choices, OPTIONS)
    assert caught.value.location == location


def test_limits() -> None:
    with pytest.raises(ConstraintTooLarge, match="max_choices"):
        choice.lower(["a", "b"], GrammarOptions(max_choices=1))
    with pytest.raises(ConstraintTooLarge, match="max_choice_bytes"):
        choice.lower(["é", "b"], GrammarOptions(max_choice_bytes=2))
    choice.lower(["é", "b"], GrammarOptions(max_choices=2, max_choice_bytes=3))
