"""A list of texts as a tree: exactly those texts, shared prefixes written once, and shallow."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.ir import Alt, Grammar, Literal, Node, Seq, children, walk, words
from infernix_plugin.grammar.prefix_tree import prefix_tree
from tests.oracles.ir_oracle import language


def tree(texts: list[str]) -> Node:
    item = words(texts)
    return item if isinstance(item, Literal) else prefix_tree(item)


def strings(node: Node) -> list[str]:
    """Every string of a finite tree, once for every way to derive it."""
    match node:
        case Literal(text):
            return [text]
        case Seq(items):
            found = [""]
            for item in items:
                found = [head + tail for head in found for tail in strings(item)]
            return found
        case Alt(options):
            return [text for option in options for text in strings(option)]
    raise TypeError(node)


def height(node: Node) -> int:
    return 1 + max(map(height, children(node)), default=0)


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1))
def test_exactly_the_choices_each_derived_once(choices: list[str]) -> None:
    assert sorted(strings(tree(choices))) == sorted(set(choices))


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=4), min_size=1))
def test_shared_prefixes_agree_with_the_oracle(choices: list[str]) -> None:
    assert language(Grammar({"root": tree(choices)}), "ab", 4) == set(choices)


@settings(deadline=None)
@given(st.lists(st.text("ab"), min_size=1), st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_matter(choices: list[str], rng: random.Random) -> None:
    shuffled = choices + choices[:2]
    rng.shuffle(shuffled)
    assert tree(shuffled) == tree(choices)


@settings(deadline=None)
@given(st.lists(st.text("ab", min_size=1), min_size=2, unique=True))
def test_no_two_branches_start_alike(choices: list[str]) -> None:
    for node in walk(tree(choices)):
        if isinstance(node, Alt):
            firsts = [strings(option)[0][:1] for option in node.options]
            assert len(set(firsts)) == len(firsts)


def test_exact_characters() -> None:
    choices = ["", " ", "\n", "\0", "\x7f", '"', "\\", "\\n", "é", "e\u0301", "\U0010ffff", "中", "[a]", "a|b", "\r\n"]
    assert sorted(strings(tree(choices))) == sorted(choices)


def many(kind: str) -> list[str]:
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 12))) for _ in range(10_000)]
    return {
        "words": words,
        "numbered": [f"item-{index:05d}" for index in range(10_000)],
        "pairs": [f"{rng.choice(words[:300])} {rng.choice(words[:300])}" for _ in range(10_000)],
        "nested": ["a" * length for length in range(3_000)],
    }[kind]


@pytest.mark.parametrize("kind", ["words", "numbered", "pairs", "nested"])
def test_thousands_of_choices(kind: str) -> None:
    choices = many(kind)
    node = tree(choices)
    assert height(node) <= 80
    assert sum(len(part.text) for part in walk(node) if isinstance(part, Literal)) <= sum(map(len, choices))
