"""Folds that remember, and what is asked about lexemes through them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.grammar.analysis import (
    SharedFold,
    fold,
    has_intersections,
    leaves,
    nullable,
    productive,
    references,
)
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Alt,
    And,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    chars,
    charset,
)

TEXTS = st.one_of(
    st.text("ab", max_size=2).map(Literal), st.sampled_from([chars("a"), charset([]), NEVER, charset([(97, 110)])])
)


def _above(below: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(below, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        several.map(Seq),
        several.map(Alt),
        several.map(And),
        below.map(Not),
        st.builds(Repeat, below, st.integers(0, 2), st.sampled_from([2, None])),
    )


NODES = st.recursive(TEXTS, _above, max_leaves=20)


def _written(node: Node, below: list[str]) -> str:
    return f"{type(node).__name__}{getattr(node, 'text', '')}({','.join(below)})"


class _Counting:
    def __init__(self) -> None:
        self.nodes = 0

    def __call__(self, node: Node, below: list[str]) -> str:
        self.nodes += 1
        return _written(node, below)


def _tall(height: int) -> Node:
    node: Node = Literal("a")
    for _ in range(height):
        node = Seq((node, Literal("b")))
    return node


@given(st.lists(NODES, max_size=4))
def test_the_value_is_that_of_a_fold_however_often_it_is_asked_for(nodes: list[Node]) -> None:
    shared = SharedFold(_written)
    for node in [*nodes, *nodes, Alt(tuple(nodes))]:
        assert shared(node) == fold(node, _written)


def test_a_node_is_folded_once_and_so_are_its_large_parts() -> None:
    counting = _Counting()
    shared = SharedFold(counting)
    part = _tall(20)
    shared(part)
    before = counting.nodes
    shared(part)
    shared(Alt((part, Literal("c"))))
    assert counting.nodes == before + 2


def test_leaves_hide_what_is_below_them() -> None:
    counting = _Counting()
    assert SharedFold(counting, Not)(Seq((Not(_tall(9)), Literal("a")))) == "Seq(Not(),Literala())"
    assert counting.nodes == 3


def test_memory_is_bounded() -> None:
    shared = SharedFold(_written)
    size = 1 << 12
    for _ in range(3 * SharedFold.BUDGET // size):
        shared(Seq((Literal("a"),) * size))
        held = sum(weight for _, weight, _ in shared._known.values())
        assert 0 < held <= SharedFold.BUDGET
        assert held == shared._held
    shared(Literal("a" * 16 * SharedFold.BUDGET))
    assert all(weight <= SharedFold.BUDGET for _, weight, _ in shared._known.values())


@given(NODES)
def test_a_lexeme_is_what_is_in_it(node: Node) -> None:
    inside, outside = Grammar({"root": Lexeme(node)}), Grammar({"root": node})
    assert nullable(Lexeme(node)) == nullable(node)
    assert productive(inside) == productive(outside)
    assert has_intersections(inside) == has_intersections(outside)


def test_leaves_are_all_that_has_no_children() -> None:
    lexeme = Lexeme(Seq((Literal("a"), chars("b"))))
    node = Seq((Ref("x"), Alt((lexeme, Repeat(NEVER, 0, None), TokenSet((1,)))), EPSILON))
    assert set(leaves(node)) == {Ref("x"), lexeme, NEVER, TokenSet((1,)), EPSILON}
    assert list(references(node)) == ["x"]


@pytest.mark.parametrize(
    ("body", "alive"),
    [
        (Ref("root"), False),
        (Alt((Literal("a"), Seq((Literal("b"), Ref("root"))))), True),
        (Seq((Repeat(charset([]), 0, None), Literal("a"))), True),
        (Seq((Repeat(charset([]), 1, None), Literal("a"))), False),
        (Alt((TokenSet(()), Lexeme(Seq((charset([]), Literal("a")))))), False),
        (Alt((TokenSet((), exclude=True), NEVER)), True),
    ],
)
def test_productive(body: Node, alive: bool) -> None:
    assert productive(Grammar({"root": body})) == ({"root"} if alive else set())
