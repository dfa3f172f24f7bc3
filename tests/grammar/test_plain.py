"""Fewer intersections, complements and counts, and the same language."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar import automata, regex
from infernix_plugin.grammar.analysis import fold
from infernix_plugin.grammar.ir import ANY_CHAR, And, Literal, Node, Not, Repeat, chars, repeat, seq, walk
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.plain import _uncounted, plainer
from tests.oracles.ir_strategies import boolean_nodes

HOST = r"^(?!.*://)(?=.{1,255}$)((.{1,63}\.){1,127}(?![0-9]*$)[a-z0-9-]+\.?)$"


def operators(node: Node) -> int:
    return sum(isinstance(part, And | Not) for part in walk(node))


def counts(node: Node) -> set[int | None]:
    return {part.maximum for part in walk(node) if isinstance(part, Repeat)} - {None, 1}


@settings(max_examples=200, deadline=None)
@given(boolean_nodes(), st.integers(0, 5))
def test_the_language_stays(node: Node, longest: int) -> None:
    """Also where texts are bounded from outside, so that counts inside may be dropped."""
    bounded = And((Repeat(ANY_CHAR, 0, longest), node))
    for one in (node, bounded, seq(Literal("a"), bounded), Not(bounded)):
        assert automata.build(plainer(one)) == automata.build(one)


@settings(max_examples=200, deadline=None)
@given(boolean_nodes(), st.integers(0, 5))
def test_the_language_stays_where_nothing_can_be_worked_out(node: Node, longest: int) -> None:
    bounded = And((Repeat(ANY_CHAR, 0, longest), node))
    for one in (node, bounded, seq(Literal("a"), bounded), Not(bounded), And((bounded, Not(Repeat(node, 0, 2))))):
        assert automata.build(fold(one, _uncounted)) == automata.build(one)


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("^(?!ab)[a-c]+$", 0),
        ("(?=.*[0-9])(?=.*[a-z])^[a-z0-9]*$", 0),
        ("^(?!.*--)[a-z-]{1,63}$", 1),
        (HOST, 1),
    ],
)
def test_only_what_is_small_is_worked_out(pattern: str, left: int) -> None:
    node = regex.search(pattern, GrammarOptions())
    assert operators(node)
    assert operators(plainer(node)) == left


def test_a_count_that_the_length_never_reaches_is_dropped() -> None:
    node = regex.search(HOST, GrammarOptions())
    assert counts(node) == {255, 127, 63}
    assert counts(plainer(node)) == {255, 63}
    pair = seq(chars("ab"), repeat(chars("ab"), 1))
    assert counts(plainer(And((Repeat(ANY_CHAR, 0, 254), Repeat(pair, 0, 126))))) == {254, 126}
    assert counts(plainer(And((Repeat(ANY_CHAR, 0, 253), Repeat(pair, 0, 126))))) == {253}


def test_without_operators_nothing_is_touched() -> None:
    node = seq(repeat(chars("ab"), 0, 200), Literal("c"))
    assert plainer(node) is node
