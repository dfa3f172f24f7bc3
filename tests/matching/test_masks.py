"""Masks against the enumerated language, on both engines."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import UnsatisfiableConstraint
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Alt,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    alt,
    chars,
    optional,
    repeat,
    seq,
)
from infernix_plugin.matching import MaskState
from infernix_plugin.matching.engines.lexing import ambiguity
from tests.matching.support import CONTROL, DOMAIN, PIECES, STOP, Word, after, compiled, legal, mask, words

X, Y = CONTROL["<x>"], CONTROL["<y>"]
A, AB = PIECES.index(b"a"), PIECES.index(b"ab")
WORDS_AT_MOST = 400


def assert_masks_are_exact(engine: str, grammar: Grammar | Node, seed: int = 0) -> None:
    """Every mask of some walks, and what follows when they end."""
    rules = dict(grammar.rules) if isinstance(grammar, Grammar) else {}
    language = words(grammar.start if isinstance(grammar, Grammar) else grammar, rules)
    if not legal(language):
        with pytest.raises(UnsatisfiableConstraint):
            compiled(engine, grammar)
        return
    program = compiled(engine, grammar)
    rng = random.Random(seed)
    for _ in range(6):
        session, rest = program.session(), language
        while True:
            state, allowed = mask(session)
            assert session.complete == (() in rest)
            if not legal(rest):
                assert state is MaskState.DEAD_END
                break
            assert state is MaskState.READY
            assert allowed == legal(rest), rest
            token = rng.choice(sorted(allowed))
            refused = rng.randrange(DOMAIN.vocab_size)
            assert session.accept(refused) if refused in allowed else not session.accept(refused)
            token = refused if refused in allowed else token
            if token == STOP:
                assert session.terminated or session.accept(STOP)
                break
            if refused not in allowed:
                assert session.accept(token)
            rest = after(rest, token)


def language_size(node: Node) -> int:
    try:
        return len(words(node)) if not _huge(node) else WORDS_AT_MOST + 1
    except RecursionError:
        return WORDS_AT_MOST + 1


def _huge(node: Node) -> bool:
    match node:
        case Seq(items):
            return any(map(_huge, items)) or len(items) > 4
        case Alt(options):
            return any(map(_huge, options))
        case Repeat(item, _, _) | Lexeme(item):
            return _huge(item) or len(words(item)) > 12
        case _:
            return False


def finite(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        counts = st.tuples(st.integers(0, 2), st.integers(0, 1))
        return st.one_of(
            st.lists(inner, max_size=3).map(lambda items: seq(*items)),
            st.lists(inner, max_size=3).map(lambda items: alt(*items)),
            st.tuples(inner, counts).map(lambda pair: repeat(pair[0], pair[1][0], sum(pair[1]))),
        )

    return st.recursive(leaves, grown, max_leaves=7).filter(lambda node: language_size(node) <= WORDS_AT_MOST)


TEXTS = st.one_of(
    st.text("abé中", max_size=3).map(Literal),
    st.sets(st.sampled_from("abé"), min_size=1).map(lambda found: chars("".join(sorted(found)))),
)
TOKENS = st.tuples(st.sets(st.sampled_from([X, Y, A, AB]), min_size=1, max_size=2), st.booleans()).map(
    lambda pair: TokenSet(tuple(sorted(pair[0])), pair[1])
)
JSON_TEXTS = st.one_of(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"a"', '"ab"', '""', "a", "1", "ab", " ", "\n", '"', '{"a":1}', ""]
    ).map(Literal),
    st.sampled_from(
        [
            Lexeme(repeat(chars(" \n"), 0, 2)),
            Lexeme(repeat(chars(" \n"), 1, 2)),
            Lexeme(repeat(chars("ab1"), 1, 2)),
            Lexeme(seq(Literal('"'), repeat(alt(chars("ab é"), Literal("\\n")), 0, 2), Literal('"'))),
            Lexeme(seq(Literal('"'), repeat(alt(chars("ab:"), Literal('\\"')), 1, 1), Literal('"'))),
            TokenSet((X,)),
            TokenSet((Y, X)),
            TokenSet((X,), exclude=True),
        ]
    ),
)


@pytest.mark.parametrize("choice", [repeat(Literal("a"), 1, 2), seq(Literal("a"), optional(Literal("a")))], ids=str)
def test_choices_that_begin_alike_on_xgrammar(choice: Node) -> None:
    assert_masks_are_exact("xgrammar", alt(Literal("a"), choice))


@given(finite(TEXTS), st.integers(0, 1 << 16))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_texts_on_xgrammar(node: Node, seed: int) -> None:
    assert_masks_are_exact("xgrammar", node, seed)


@given(finite(TEXTS), st.integers(0, 1 << 16))
@settings(max_examples=80, deadline=None)
def test_texts_as_one_terminal_on_llguidance(node: Node, seed: int) -> None:
    assert_masks_are_exact("llguidance", Lexeme(node), seed)


@given(finite(st.one_of(TEXTS, TOKENS)), st.integers(0, 1 << 16))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_texts_and_tokens_on_xgrammar(node: Node, seed: int) -> None:
    assert_masks_are_exact("xgrammar", node, seed)


@given(finite(JSON_TEXTS), st.integers(0, 1 << 16))
@settings(max_examples=250, deadline=None)
def test_what_is_called_unambiguous_is_exact_on_llguidance(node: Node, seed: int) -> None:
    assume(ambiguity(Grammar({"root": node}), DOMAIN) is None)
    assert_masks_are_exact("llguidance", node, seed)


@pytest.mark.parametrize("engine", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(
    "node",
    [
        EPSILON,
        Literal("中"),
        Literal("aé" * 3),
        alt(Literal("a"), EPSILON),
        alt(Literal('"a"'), Literal('"ab"'), Lexeme(seq(Literal('"'), repeat(chars("ab"), 0, 3), Literal('"')))),
        alt(seq(Literal('{"a":1'), optional(Literal("}"))), seq(Literal("{"), Literal("}"))),
        seq(repeat(TokenSet((X,), exclude=True), 0, 2), TokenSet((X,)), Literal("\n\n"), Literal("a")),
        seq(TokenSet((X, Y)), Literal("é")),
        NEVER,
        seq(Literal("a"), NEVER),
    ],
    ids=str,
)
def test_small_grammars(engine: str, node: Node) -> None:
    assert_masks_are_exact(engine, node)


@pytest.mark.parametrize("engine", ["xgrammar", "llguidance"])
def test_recursion_through_rules(engine: str) -> None:
    rules = {"root": alt(Literal("1"), Ref("list")), "list": seq(Literal("["), Ref("inner"), Literal("]"))}
    assert_masks_are_exact(engine, Grammar({**rules, "inner": alt(Literal("1"), Literal('"a"'))}))


def test_words_is_an_oracle() -> None:
    expected: set[Word] = {(97,), (97, 98), (97, 98, 98), (f"<{X}>",)}
    assert words(alt(seq(Literal("a"), repeat(Literal("b"), 0, 2)), TokenSet((X,)))) == expected
