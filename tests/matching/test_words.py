"""Lists of texts as one terminal: every character in them, thousands of them, and where they stand beside others."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.grammar.ir import Alt, Grammar, Lexeme, Literal, Node, Repeat, Seq, Words, alt, words
from infernix_plugin.matching import CompiledGrammar, MaskState
from infernix_plugin.matching.engines.lexing import ambiguity
from tests.matching.support import DOMAIN, ENGINES, STOP, after, compiled, legal, mask
from tests.matching.support import words as members
from tests.oracles.ir_matcher import in_language

CHARACTERS = [*map(chr, range(0x250)), *"\u2028\u2029\ufeff\ud7ff\ue000\uffff中\U0001f600\U0010ffff"]


@pytest.fixture(scope="module")
def compiler(tiny_model) -> ConstraintCompiler:
    return ConstraintCompiler(TokenDomain.from_pretrained(tiny_model))


def accepts(grammar: CompiledGrammar, domain: TokenDomain, text: str) -> bool:
    session = grammar.session()
    return all(session.accept(domain.byte_token(byte)) for byte in text.encode()) and session.complete


def test_every_character(compiler: ConstraintCompiler) -> None:
    texts = [f"{character}y" for character in CHARACTERS]
    grammar = compiler.compile(OutputConstraint.choice(["", *texts]))
    assert grammar.engine == "llguidance"
    assert [text for text in texts if not accepts(grammar, compiler.domain, text)] == []
    assert accepts(grammar, compiler.domain, "")
    for text in ("y", "yyy", "a", "\\", "\\ny", "\\u0000y", "aay"):
        assert not accepts(grammar, compiler.domain, text)


def test_a_hundred_thousand_of_four_megabytes(compiler: ConstraintCompiler) -> None:
    rng = random.Random(5)
    texts = ["".join(rng.choices(string.ascii_lowercase, k=40)) for _ in range(100_000)]
    grammar = compiler.compile(OutputConstraint.choice(texts))
    for text in texts[:20]:
        assert accepts(grammar, compiler.domain, text)
        assert not accepts(grammar, compiler.domain, text[:-1])
        assert not accepts(grammar, compiler.domain, text + "a")


@pytest.mark.parametrize("length", [1024, 1025])
def test_a_long_text(compiler: ConstraintCompiler, length: int) -> None:
    text = ("".join(char for char in CHARACTERS if ord(char) < 1 << 16) * 2)[:length]
    escaped = "".join(f"\\u{ord(char):04x}" for char in text)
    for constraint in (OutputConstraint.choice([text]), OutputConstraint.regex(f"{escaped}[ab]?")):
        grammar = compiler.compile(constraint)
        assert accepts(grammar, compiler.domain, text)
        assert not accepts(grammar, compiler.domain, text[:-1])
        assert not accepts(grammar, compiler.domain, "b" + text[1:])
    assert accepts(grammar, compiler.domain, text + "b")


def test_the_strings_of_an_enum_are_one_terminal(compiler: ConstraintCompiler) -> None:
    grammar = compiler.compile(OutputConstraint.json_schema({"enum": ["a", 'b"\n', 3, None, "\x7f", "a"]}))
    for text in ('"a"', '"b\\"\\n"', "3", "null", '"\x7f"'):
        assert accepts(grammar, compiler.domain, text)
    for text in ('"b', '"b\\"\n"', '""', "4"):
        assert not accepts(grammar, compiler.domain, text)
    assert grammar.grammar_text().count(r'"\"a\""') == 1


LISTS = st.lists(st.text('ab"\\ .:', max_size=4), min_size=2, unique=True).map(words)


@given(LISTS, st.sampled_from(['"', "b", " ", ":", "a b"]))
@settings(max_examples=300)
def test_a_list_is_cut_as_its_texts_are(item: Words, after: str) -> None:
    def judged(inner: Node) -> bool:
        return ambiguity(Grammar({"root": Seq((Lexeme(inner), Literal(after)))}), DOMAIN) is None

    assert judged(item) == judged(Alt(tuple(map(Literal, item.texts))))


@pytest.mark.parametrize("engine", sorted(ENGINES))
@given(data=st.data())
@settings(max_examples=40)
def test_masks_where_lists_are_parts_of_a_terminal(engine: str, data: st.DataObject) -> None:
    lists = st.lists(st.text('ab"\\ :é', max_size=3), min_size=2, unique=True).map(words)
    item = Seq((data.draw(lists), Repeat(alt(data.draw(lists), Literal(",")), 0, 2)))
    rest = members(item)
    session = compiled(engine, Lexeme(item)).session()
    for _ in range(6):
        state, allowed = mask(session)
        assert allowed == legal(rest)
        tokens = sorted(allowed - {STOP})
        if state is not MaskState.READY or not tokens:
            break
        token = data.draw(st.sampled_from(tokens))
        assert session.accept(token)
        rest = after(rest, token)


@given(LISTS, st.text('ab"\\ .:', max_size=4))
def test_the_oracle_knows_lists(item: Words, text: str) -> None:
    assert in_language(item, text) == (text in item.texts)
