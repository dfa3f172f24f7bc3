"""Random grammars for property tests: small, but with every shape that makes trouble."""

from __future__ import annotations

from hypothesis import strategies as st

from infernix_plugin.grammar.ir import (
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
    alt,
    charset,
    seq,
    words,
)

ALPHABET = "abé"
RULES = ("root", "p", "q", "r")


def letters(alphabet: str = ALPHABET) -> st.SearchStrategy[Node]:
    sets = st.sets(st.sampled_from(alphabet)).map(lambda found: charset((ord(c), ord(c)) for c in found))
    texts = st.text(alphabet, max_size=3).map(Literal)
    lists = st.lists(st.text(alphabet, max_size=3), min_size=2, unique=True).map(words)
    return st.one_of(texts, texts, sets, lists)


def _compound(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    items = st.lists(inner, max_size=3)
    counts = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2)))
    return st.one_of(
        items.map(lambda found: Seq(tuple(found))),
        items.map(lambda found: Alt(tuple(found))),
        items.map(lambda found: seq(*found)),
        items.map(lambda found: alt(*found)),
        st.builds(
            lambda item, span: Repeat(item, span[0], None if span[1] is None else span[0] + span[1]), inner, counts
        ),
    )


def regular_nodes(alphabet: str = ALPHABET, leaves: int = 8) -> st.SearchStrategy[Node]:
    """Nodes without references, intersections or complements."""
    return st.recursive(letters(alphabet), _compound, max_leaves=leaves)


def boolean_nodes(alphabet: str = ALPHABET, leaves: int = 6) -> st.SearchStrategy[Node]:
    """Regular nodes with intersections and complements."""
    return st.recursive(
        letters(alphabet),
        lambda inner: st.one_of(
            _compound(inner),
            st.lists(inner, min_size=1, max_size=3).map(lambda found: And(tuple(found))),
            inner.map(Not),
        ),
        max_leaves=leaves,
    )


@st.composite
def grammars(draw: st.DrawFn, alphabet: str = ALPHABET, leaves: int = 6) -> Grammar:
    """Context-free grammars with left, right, middle and hidden recursion, empty rules and useless rules."""
    names = RULES[: draw(st.integers(1, len(RULES)))]
    references = st.sampled_from(names).map(Ref)
    inner = st.recursive(
        st.one_of(letters(alphabet), references),
        lambda below: st.one_of(_compound(below), _compound(below), regular_nodes(alphabet, 3).map(Lexeme)),
        max_leaves=leaves,
    )
    return Grammar({name: draw(inner) for name in names})
