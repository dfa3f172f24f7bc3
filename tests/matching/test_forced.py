"""Forced text: it is a prefix of everything that may come, and asking for it changes nothing."""

import pytest

from infernix_plugin.grammar.ir import Lexeme, Literal, TokenSet, alt, chars, repeat, seq
from tests.matching.support import CONTROL, DOMAIN, ENGINES, compiled, ids, new_row, words

GRAMMARS = {
    "one text": (Literal('{"ab":1}'), b'{"ab":1}'),
    "a common beginning": (alt(Literal("abba"), Literal("abab")), b"ab"),
    "a choice": (alt(Literal("a1"), Literal("b1")), b""),
    "a marker behind text": (seq(Literal("1a"), TokenSet((CONTROL["<x>"],))), b"1a"),
    "an end that may come": (seq(Literal("a"), repeat(Literal("b"), 0, 1)), b"a"),
    "a character in two bytes": (seq(Literal("é"), Lexeme(chars("1é"))), "é".encode()),
    "whitespace": (seq(Lexeme(repeat(chars(" \n"), 0, 2)), Literal(":")), b""),
}


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("engine", ENGINES)
def test_forced_text(engine, name):
    grammar, forced = GRAMMARS[name]
    assert compiled(engine, grammar).session().scout().forced() == forced


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("engine", ENGINES)
def test_everywhere_it_is_what_all_members_begin_with_and_leaves_the_masks(engine, name):
    grammar, _ = GRAMMARS[name]
    members = words(grammar)
    prefixes = {word[:cut] for word in members for cut in range(len(word))}
    for prefix in prefixes:
        if not all(isinstance(byte, int) for byte in prefix):
            continue
        scout, untouched = (compiled(engine, grammar).session().scout() for _ in range(2))
        assert scout.accept_bytes(bytes(prefix)) == untouched.accept_bytes(bytes(prefix)) == len(prefix)
        forced = tuple(scout.forced())
        assert all(word[len(prefix) :][: len(forced)] == forced for word in members if word[: len(prefix)] == prefix)
        assert ids(scout.fill(new_row()) & DOMAIN.generable_bits) == ids(
            untouched.fill(new_row()) & DOMAIN.generable_bits
        )
        assert scout.accept_bytes(bytes(forced)) == len(forced)
