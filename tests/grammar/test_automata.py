from __future__ import annotations

import pytest
from hypothesis import given, settings

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import automata
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    NEVER,
    Alt,
    And,
    Grammar,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    chars,
    charset,
    repeat,
    seq,
)
from infernix_plugin.grammar.pool import Pool
from tests.oracles.ir_oracle import language, matches
from tests.oracles.ir_strategies import ALPHABET, boolean_nodes, regular_nodes

MAX_LEN = 4


def words(node: Node) -> set[str]:
    return language(Grammar({"root": node}), ALPHABET, MAX_LEN)


def accepted(machine: automata.Automaton) -> set[str]:
    everything = language(Grammar({"root": repeat(chars(ALPHABET))}), ALPHABET, MAX_LEN)
    return {text for text in everything if machine.accepts(text)}


@settings(max_examples=150, deadline=None)
@given(boolean_nodes())
def test_an_automaton_accepts_the_language_of_its_node(node: Node) -> None:
    assert accepted(automata.build(node)) == words(node)


@settings(max_examples=100, deadline=None)
@given(boolean_nodes())
def test_emptiness_is_exact(node: Node) -> None:
    machine = automata.build(node)
    assert automata.is_empty(node) == machine.is_empty()
    if words(node):
        assert not machine.is_empty()


@settings(max_examples=100, deadline=None)
@given(regular_nodes(), regular_nodes())
def test_intersection_and_complement_agree_with_the_nodes_for_them(left: Node, right: Node) -> None:
    one, other = automata.build(left), automata.build(right)
    assert one.intersection(other) == automata.build(And((left, right)))
    assert one.complement() == automata.build(Not(left))
    assert one.complement().complement() == one


@settings(max_examples=100, deadline=None)
@given(boolean_nodes())
def test_right_linear_rules_and_expressions_keep_the_language(node: Node) -> None:
    machine = automata.build(node)
    assert language(machine.grammar(), ALPHABET, MAX_LEN) == words(node)
    pool = Pool()
    expression = machine.expression(pool, limit=100_000)
    assert expression is not None
    assert pool.facts(expression).plain
    assert words(expression) == words(node)


def test_minimal_automata_of_equal_languages_are_equal() -> None:
    a, b = Literal("a"), Literal("b")
    left = seq(repeat(Alt((a, b))), a, Repeat(Alt((a, b)), 2, 2))
    right = seq(repeat(chars("ba")), a, chars("ab"), chars("ba"))
    assert automata.build(left) == automata.build(right)
    assert len(automata.build(left).moves) == 8  # the last three characters decide: 2 ** 3


def test_a_state_limit_is_named() -> None:
    node = seq(repeat(chars("ab")), Literal("a"), Repeat(chars("ab"), 12, 12))
    with pytest.raises(ConstraintTooLarge, match="more than 1000 states"):
        automata.build(node, limit=1000)
    assert not automata.is_empty(node, limit=1000)
    with pytest.raises(ConstraintTooLarge, match="more than 100 states"):
        automata.is_empty(And((Repeat(chars("a"), 500, 500), Repeat(chars("a"), 501, 501))), limit=100)


def test_counts_are_not_written_out() -> None:
    string = Repeat(Alt((chars("x"), seq(Literal("\\"), chars("n")))), 0, 1000)
    machine = automata.build(string)
    assert len(machine.moves) == 2001
    assert machine.accepts("\\n" * 1000)
    assert not machine.accepts("x" * 1001)


def test_all_scalar_values_and_no_surrogates() -> None:
    machine = automata.build(Not(NEVER))
    ((letters, target),) = machine.moves[0]
    assert (letters, target) == (ANY_CHAR, 0)
    other = automata.build(Not(charset([(0, 0x10FFFE)])))
    assert other.accepts("\U0010ffff")
    assert other.accepts("\0\0")
    assert not other.accepts("\0")


def test_deep_nodes_do_not_overflow_the_stack() -> None:
    node: Node = Literal("a")
    for _ in range(20_000):
        node = Seq((Alt((node, Literal("b"))),))
    machine = automata.build(node)
    assert machine.accepts("a")
    assert machine.accepts("b")
    assert not machine.accepts("")


def test_references_are_refused() -> None:
    with pytest.raises(ValueError, match="without references"):
        automata.build(Ref("root"))


def test_the_oracle_and_the_automaton_agree_on_longer_texts() -> None:
    number = seq(repeat(Literal("-"), 0, 1), Alt((Literal("0"), seq(chars("12"), repeat(chars("012"))))))
    both = And((number, Not(seq(repeat(ANY_CHAR), Literal("1"), repeat(ANY_CHAR)))))
    machine = automata.build(both)
    for text in ("0", "-0", "00", "2", "20202", "-2", "-", "", "21", "12", "-202"):
        assert machine.accepts(text) == matches(Grammar({"root": both}), text), text
