"""What is sent of a grammar is what arrives."""

import json

from hypothesis import given

from infernix_plugin.grammar.ir import ANY_CHAR, And, Grammar, Lexeme, Literal, Node, Not, Remark, TokenSet, Words, seq
from infernix_plugin.grammar.places import Place, UniqueItems
from infernix_plugin.grammar.wire import (
    packed_remarks,
    packed_rules,
    packed_unique,
    unpacked_remarks,
    unpacked_rules,
    unpacked_unique,
)
from tests.oracles.ir_strategies import boolean_nodes, grammars


def sent(values: object) -> object:
    return json.loads(json.dumps(values))


@given(grammars())
def test_rules_of_grammars(grammar: Grammar) -> None:
    assert unpacked_rules(sent(packed_rules(grammar.rules))) == grammar.rules


@given(boolean_nodes())
def test_lexemes_of_intersections_and_complements(node: Node) -> None:
    rules = {"root": seq(Lexeme(node), Literal('"\u20ac\n'), Lexeme(Lexeme(node)))}
    assert unpacked_rules(sent(packed_rules(rules))) == rules


def test_leaves() -> None:
    rules = {"a": Words(("", "b", "\0")), "b": TokenSet((3, 5), True), "c": Not(And((ANY_CHAR, Literal(""))))}
    assert unpacked_rules(sent(packed_rules(rules))) == rules


def test_what_is_shared_stays_shared_and_equal_lexemes_are_one_object() -> None:
    part = seq(Literal("a"), ANY_CHAR)
    first, second = ({"root": seq(Lexeme(seq(part, ANY_CHAR)), part, Literal(text), part)} for text in "xy")
    one, other = (unpacked_rules(sent(packed_rules(rules)))["root"] for rules in (first, second))
    assert one.items[0] is other.items[0]
    assert one != other
    packed = packed_rules({"root": seq(*[Lexeme(part)] * 1000)})
    assert len(packed["lexemes"]) == 1
    assert len(packed["cells"]) == 2


def test_a_deep_tree() -> None:
    node: Node = Literal("x")
    for _ in range(5000):
        node = Not(node)
    arrived = unpacked_rules(sent(packed_rules({"root": node})))["root"]
    for _ in range(5000):
        assert isinstance(arrived, Not)
        arrived = arrived.item
    assert arrived == Literal("x")


def test_watched_places() -> None:
    place = Place(True, 3, True, frozenset({"string", "array"}), (1, -1), 2, {"a": 1}, 0)
    unique = UniqueItems((place, Place()), 7, "\n")
    arrived = unpacked_unique(sent(packed_unique(unique)))
    assert packed_unique(arrived) == packed_unique(unique)
    assert isinstance(arrived.places[0].roomy, frozenset)
    assert isinstance(arrived.places[0].positions, tuple)
    assert (arrived.opening, arrived.separator) == (7, "\n")


def test_remarks() -> None:
    remarks = (Remark("adds nothing", "3:1"),)
    assert unpacked_remarks(sent(packed_remarks(remarks))) == remarks
