"""Neighbouring repetitions of one item are one repetition: the same language, a linear automaton."""

import pytest

from infernix_plugin.grammar import regex
from infernix_plugin.grammar.automata import build
from infernix_plugin.grammar.ir import MAX_JOINED_COUNT, Literal, Repeat, Seq, chars
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.pool import Pool

OPTIONS = GrammarOptions()
LETTERS = chars("ab")


def test_a_row_of_optional_classes_is_a_count() -> None:
    assert regex.parse("[ab]?" * 5000, OPTIONS) == Repeat(LETTERS, 0, 5000)


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [
        ("a{2,3}a{1,4}", range(3, 8)),
        ("a?a*", range(13)),
        ("a{2}a+a?", range(3, 13)),
        ("(?:a?){2}(?:a?){3}", range(6)),
        ("a*a{2,}a?", range(2, 13)),
    ],
)
def test_the_language_stays(pattern: str, lengths: range) -> None:
    automaton = build(regex.parse(pattern, OPTIONS))
    assert [length for length in range(13) if automaton.accepts("a" * length)] == list(lengths)


def test_what_stands_between_keeps_them_apart() -> None:
    parts = (Repeat(LETTERS, 0, 1), Literal("b"), Repeat(LETTERS, 0, 1), Repeat(chars("bc"), 0, 1))
    assert regex.parse("[ab]?b[ab]?[bc]?", OPTIONS) == Seq(parts)


def test_the_pool_joins_what_rewriting_brings_together() -> None:
    pool = Pool()
    item = pool.alt(pool.literal("ab"), pool.literal("c"))
    row = pool.seq(*[pool.repeat(item, 0, 1)] * 7, pool.repeat(item, 2, 3))
    assert row is pool.repeat(item, 2, 10)


def test_counts_stay_within_what_engines_can_hold() -> None:
    half = MAX_JOINED_COUNT // 2 + 1
    whole = regex.parse(f"[ab]{{{half}}}[ab]{{{half}}}", OPTIONS)
    assert whole == Seq((Repeat(LETTERS, half, half), Repeat(LETTERS, half, half)))
