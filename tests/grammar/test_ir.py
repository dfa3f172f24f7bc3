"""The tree's constructors, the pool's identities and the questions about whole grammars, against the oracle."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar import analysis
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    EPSILON,
    MAX_SCALAR,
    NEVER,
    Alt,
    And,
    CharSet,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    Words,
    alt,
    chars,
    charset,
    complement,
    optional,
    repeat,
    seq,
    walk,
)
from infernix_plugin.grammar.pool import Pool
from tests.oracles.ir_oracle import language, matches
from tests.oracles.ir_strategies import ALPHABET, boolean_nodes, grammars, regular_nodes

A, B = Literal("a"), Literal("b")


def words(node: Node, max_len: int = 4) -> set[str]:
    return language(Grammar({"root": node}), ALPHABET, max_len)


# -- character sets and constructors ----------------------------------------------------------------------------------

scalars = st.integers(-5, MAX_SCALAR + 5)


@given(st.lists(st.tuples(scalars, scalars), max_size=6), st.lists(st.integers(0, MAX_SCALAR), max_size=20))
def test_charset_holds_the_scalar_values_of_its_ranges(pairs: list[tuple[int, int]], probes: list[int]) -> None:
    built = charset(pairs)
    assert all(low <= high for low, high in built.ranges)
    assert all(first[1] + 1 < second[0] for first, second in zip(built.ranges, built.ranges[1:], strict=False))
    edges = [edge + shift for pair in pairs for edge in pair for shift in (-1, 0, 1)]
    for scalar in [*probes, *edges, 0xD7FF, 0xD800, 0xDFFF, 0xE000]:
        real = 0 <= scalar <= MAX_SCALAR and not 0xD800 <= scalar <= 0xDFFF
        assert (scalar in built) == (real and any(low <= scalar <= high for low, high in pairs))
        assert (scalar in complement(built)) == (real and scalar not in built)
    assert complement(complement(built)) == built


@settings(max_examples=60, deadline=None)
@given(regular_nodes(leaves=4), regular_nodes(leaves=4))
def test_constructors_mean_what_the_plain_nodes_mean(left: Node, right: Node) -> None:
    for smart, plain in (
        (seq(left, right, left), Seq((left, right, left))),
        (alt(left, right, left), Alt((left, right, left))),
        (repeat(left, 1, 2), Repeat(left, 1, 2)),
        (repeat(left, 1, 1), left),
        (optional(right), Repeat(right, 0, 1)),
        (repeat(right), Repeat(right, 0, None)),
    ):
        assert words(smart) == words(plain)


def test_trivial_counts() -> None:
    assert repeat(NEVER) == EPSILON
    assert repeat(NEVER, 1) == NEVER
    assert repeat(A, 0, 0) == EPSILON
    with pytest.raises(ValueError, match="empty"):
        repeat(A, 2, 1)


# -- the pool ---------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(boolean_nodes(leaves=8))
def test_adopting_a_node_keeps_its_language(node: Node) -> None:
    pool = Pool()
    pooled = pool.adopt(node)
    assert words(pooled) == words(node)
    assert pool.adopt(pooled) is pooled
    assert pool.facts(pooled).nullable == ("" in words(node))


@settings(max_examples=100, deadline=None)
@given(regular_nodes(leaves=8))
def test_a_pooled_regular_node_is_empty_only_as_never(node: Node) -> None:
    pool = Pool()
    has_texts = bool(analysis.productive(Grammar({"root": node})))
    assert (pool.adopt(node) is pool.never) == (not has_texts)


def test_equal_structure_is_one_object() -> None:
    pool = Pool()
    left = pool.adopt(Alt((Seq((A, Ref("r"))), Repeat(B, 0, None))))
    right = pool.alt(pool.seq(pool.literal("a"), pool.ref("r")), pool.repeat(pool.literal("b")))
    assert left is right
    assert pool.adopt(Lexeme(A)) is pool.literal("a")
    assert pool.charset(chars("x")) is pool.literal("x")
    assert pool.adopt(CharSet(())) is pool.never


def test_facts() -> None:
    pool = Pool()

    def facts_of(node: Node) -> object:
        facts = pool.facts(pool.adopt(node))
        return facts.nullable, facts.regular, facts.plain, facts.positions, sorted(facts.references)

    assert facts_of(Repeat(Seq((A, chars("xy"))), 0, 10)) == (True, True, True, 20, [])
    assert facts_of(Seq((Ref("r"), Ref("q"), A))) == (False, False, True, 3, ["q", "r"])
    assert facts_of(Repeat(Ref("r"), 3, None)) == (False, False, True, 3, ["r"])
    assert facts_of(TokenSet((1,)))[:2] == (False, False)  # type: ignore[index]
    assert facts_of(And((repeat(ANY_CHAR), Not(A)))) == (True, True, False, 2, [])


def test_a_reference_is_never_taken_for_nullable() -> None:
    """Else ``r ::= r?`` would lose the empty string that only this option gives it."""
    pool = Pool()
    assert pool.adopt(Repeat(Ref("r"), 0, 1)) is not pool.ref("r")
    assert pool.adopt(Alt((EPSILON, Ref("r")))) is pool.adopt(Repeat(Ref("r"), 0, 1))


@settings(max_examples=60, deadline=None)
@given(grammars(leaves=5))
def test_substituting_a_rule_keeps_the_language(grammar: Grammar) -> None:
    pool = Pool()
    rules = {name: pool.adopt(body) for name, body in grammar.rules.items()}
    last = list(rules)[-1]
    changed = {name: pool.substitute(body, {last: rules[last]}) for name, body in rules.items()}
    assert language(Grammar(changed), ALPHABET, 3) == language(grammar, ALPHABET, 3)


# -- whole grammars ---------------------------------------------------------------------------------------------------


def blank(node: Node) -> Node:
    """The node with every text and character replaced by the empty string: productive becomes nullable."""
    match node:
        case Literal() | Words():
            return EPSILON
        case CharSet(ranges):
            return EPSILON if ranges else NEVER
        case Seq(items):
            return Seq(tuple(map(blank, items)))
        case Alt(options):
            return Alt(tuple(map(blank, options)))
        case Repeat(item, low, high):
            return Repeat(blank(item), low, high)
        case Lexeme(item):
            return blank(item)
    return node


@settings(max_examples=200, deadline=None)
@given(grammars())
def test_productive_and_nullable_rules(grammar: Grammar) -> None:
    erased = {name: blank(body) for name, body in grammar.rules.items()}
    assert analysis.productive(grammar) == {name for name in erased if matches(Grammar(erased, name), "")}
    empty = {name for name in grammar.rules if matches(Grammar(grammar.rules, name), "")}
    assert analysis.nullable_rules(grammar) == empty
    for body in grammar.rules.values():
        inside = matches(Grammar({**grammar.rules, "test": body}, "test"), "")
        assert analysis.nullable(body, empty) == inside


@settings(max_examples=100, deadline=None)
@given(grammars())
def test_rules_out_of_reach_do_not_matter(grammar: Grammar) -> None:
    needed = analysis.reachable(grammar)
    without = Grammar({name: body for name, body in grammar.rules.items() if name in needed}, grammar.root)
    assert analysis.undefined(without) == {}
    assert language(without, ALPHABET, 3) == language(grammar, ALPHABET, 3)


def test_undefined_references_name_their_rule() -> None:
    grammar = Grammar({"root": Seq((Ref("a"), Ref("b"))), "a": Alt((Ref("c"), Ref("b")))})
    assert analysis.undefined(grammar) == {"b": "root", "c": "a"}
    assert analysis.undefined(Grammar({}, "start")) == {"start": "start"}


def test_regular_nodes_with_and_without_rules() -> None:
    grammar = Grammar(
        {
            "root": Seq((Ref("digits"), Ref("list"))),
            "digits": repeat(chars("01"), 1),
            "pair": Seq((Ref("digits"), A, Ref("digits"))),
            "list": Alt((A, Seq((A, Ref("list"))))),
            "token": TokenSet((1,)),
            "user": Seq((Ref("pair"), Ref("token"))),
        }
    )
    assert analysis.regular_rules(grammar) == {"digits", "pair"}
    assert analysis.is_regular(Seq((Ref("pair"), B)), grammar)
    assert not analysis.is_regular(Ref("list"), grammar)
    assert not analysis.is_regular(Ref("pair"))
    assert analysis.is_regular(And((A, Not(B))))
    assert analysis.has_intersections(Grammar({"root": Seq((A, Not(B)))}))
    assert not analysis.has_intersections(grammar)


@given(st.dictionaries(st.sampled_from("abcdefg"), st.sets(st.sampled_from("abcdefg"))))
def test_components_are_the_classes_of_mutual_reachability(edges: dict[str, set[str]]) -> None:
    graph = {name: sorted(edges.get(name, ())) for name in "abcdefg"}
    paths = {name: {name} for name in graph}
    for _ in graph:
        paths = {name: ends.union(*(graph[end] for end in ends)) for name, ends in paths.items()}
    found = analysis.components(graph)
    place = {name: index for index, group in enumerate(found) for name in group}
    assert sorted(place) == list(graph)
    assert sum(map(len, found)) == len(graph)
    for name, ends in paths.items():
        for other in graph:
            assert (place[name] == place[other]) == (other in ends and name in paths[other])
        assert all(place[end] <= place[name] for end in ends)


def test_long_chains_and_deep_nodes_need_no_stack() -> None:
    count = 3 * sys.getrecursionlimit()
    node: Node = A
    for _ in range(count):
        node = Alt((Seq((node, B)), Ref("n0")))
    chain: dict[str, Node] = {f"n{i}": Seq((A, Ref(f"n{i + 1}"), Ref("root"))) for i in range(count)}
    grammar = Grammar({"root": Alt((node, A)), **chain, f"n{count}": B})
    assert analysis.size(grammar) == sum(1 for body in grammar.rules.values() for _ in walk(body))
    assert analysis.productive(grammar) == set(grammar.rules) == analysis.reachable(grammar)
    assert analysis.nullable_rules(grammar) == set()
    assert analysis.regular_rules(grammar) == {f"n{count}"}
    pool = Pool()
    assert pool.facts(pool.adopt(node)).depth > count
