"""The emitted EBNF against the brute-force oracle, on xgrammar itself."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.emit import MAX_REGEX_COUNT, emit, regex_macro
from infernix_plugin.grammar.ir import (
    EPSILON,
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
    alt,
    chars,
    charset,
    complement,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.pool import Pool
from tests.oracles.ir_oracle import language, matches
from tests.oracles.ir_strategies import ALPHABET, grammars, regular_nodes
from tests.oracles.xgrammar_engine import LONGER, STOP, VOCABULARY, Engine

MAX_LEN = 4
TEXTS = ["".join(word) for n in range(MAX_LEN + 1) for word in itertools.product(ALPHABET, repeat=n)]


def engine(node: Node) -> Engine:
    return Engine(emit(Grammar({"root": node})))


def agrees_with_oracle(grammar: Grammar, ebnf: str) -> None:
    """Same texts as the oracle, and masks that say of every longer token what its bytes say."""
    tested = Engine(ebnf)
    expected = language(grammar, ALPHABET, MAX_LEN)
    assert {text for text in TEXTS if tested.accepts(text)} == expected, ebnf
    for text in TEXTS[:13]:
        if tested.reaches(text):
            legal = tested.legal(text)
            assert (STOP in legal) == (text in expected), ebnf
            for token in (*range(256, STOP), *b"ab", 0xC3):
                assert (token in legal) == tested.reaches(text.encode() + VOCABULARY[token]), (ebnf, text, token)


@settings(max_examples=150, deadline=None)
@given(regular_nodes(leaves=10))
def test_regular_nodes_keep_their_language(node: Node) -> None:
    grammar = Grammar({"root": node})
    agrees_with_oracle(grammar, emit(grammar))


@settings(max_examples=150, deadline=None)
@given(grammars())
def test_grammars_keep_their_language(grammar: Grammar) -> None:
    agrees_with_oracle(grammar, emit(grammar))


@settings(max_examples=50, deadline=None)
@given(grammars())
def test_emission_is_deterministic_and_blind_to_rule_names(grammar: Grammar) -> None:
    renamed = {"root": "S.tart", "p": "Token", "q": "a rule", "r": "::="}

    def rename(node: Node) -> Node:
        match node:
            case Ref(name):
                return Ref(renamed[name])
            case Seq(items):
                return Seq(tuple(map(rename, items)))
            case Alt(options):
                return Alt(tuple(map(rename, options)))
            case Repeat(item, low, high):
                return Repeat(rename(item), low, high)
            case Lexeme(item):
                return Lexeme(rename(item))
        return node

    other = Grammar({renamed[name]: rename(body) for name, body in grammar.rules.items()}, "S.tart")
    assert emit(other) == emit(grammar)


SPECIAL = [0, 1, 9, 10, 13, 27, 31, 32, *range(33, 128), 0x80, 0xA0, 0xE9, 0x7FF, 0x800, 0x2028, 0xD7FF, 0xE000]
SPECIAL += [0xFEFF, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF]


@pytest.mark.parametrize("scalar", SPECIAL, ids=hex)
def test_every_kind_of_character_is_escaped_exactly(scalar: int) -> None:
    """In a literal before a hexadecimal digit, at the ends of a class, in a complement, and inside ``Regex``."""
    char, one = chr(scalar), charset([(scalar, scalar)])
    mixed = charset([(scalar, scalar), (ord("A"), ord("C"))])
    texts = ["a", "B", "-", "]", "^", "\\", '"', "\0", "\n", "é", "\U0010ffff", chr(scalar ^ 1), "", "<", "<B", "A-C"]
    texts += [char, char + "0", char + char, "<" + char, f"<{char}{char}<B"]
    for node in (
        Literal(char + "0"),
        seq(mixed, mixed),
        alt(mixed, Literal("xx")),
        complement(one),
        repeat(alt(seq(Literal("<"), mixed), one), 1, 3),
        repeat(alt(Literal("<" + char), complement(mixed)), 1, 3),
    ):
        tested, grammar = engine(node), Grammar({"root": node})
        assert {text for text in texts if tested.accepts(text)} == {text for text in texts if matches(grammar, text)}


BOUNDS = [0, 0x41, 0x7F, 0x80, 0x100, 0x7FF, 0x800, 0x900, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]


@pytest.mark.parametrize("low", [0x41, 0x80, 0x7FF, 0x800, 0xE000, 0x10000], ids=hex)
def test_a_class_lets_no_other_bytes_through_than_those_of_its_characters(low: int) -> None:
    """Alone and inside ``Regex``, where xgrammar takes overlong encodings for characters of a wide range."""
    for high in (bound for bound in BOUNDS if bound > low):
        letters = charset([(low, high)])
        inside = [chr(scalar).encode() for scalar in BOUNDS if scalar in letters]
        starts = {text[:length] for text in inside for length in range(1, len(text) + 1)}
        odd = [
            bytes([lead, second])
            for lead in (0xC0, 0xC1, 0xE0, 0xED, 0xF0, 0xF4)
            for second in (0x80, 0x8F, 0x9F, 0xA0)
        ]
        for node in (letters, alt(repeat(alt(letters, Literal("()"))), Literal("<>"))):
            tested = engine(node)
            assert all(map(tested.reaches, starts))
            for text in odd:
                begins = any(chr(scalar).encode().startswith(text) for scalar in _beginning_with(text, low, high))
                assert tested.reaches(text) == begins, (text, high)


def _beginning_with(lead: bytes, low: int, high: int) -> list[int]:
    """Characters between the bounds, one for every pair of bytes that their encodings begin with."""
    step = 0x40 if lead[0] < 0xF0 else 0x1000
    found = {scalar for scalar in [low, high, *range(low - low % step, high + 1, step)] if low <= scalar <= high}
    return [scalar for scalar in found if not 0xD800 <= scalar <= 0xDFFF]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=8), st.text(max_size=8))
def test_literals_match_only_themselves(text: str, other: str) -> None:
    for node in (Literal(text), repeat(seq(Literal("["), optional(Literal(text)), Literal("]")), 1, 2)):
        tested = engine(node)
        one = ["[]", f"[{text}]"]
        members = [text] if isinstance(node, Literal) else [*one, *map("".join, itertools.product(one, one))]
        assert all(map(tested.accepts, members))
        assert tested.accepts(other) == (other in members)


def test_class_ranges_are_exact_at_their_ends() -> None:
    ranges = [(0, 1), (0x7E, 0x81), (0x7FE, 0x801), (0xD7FE, 0xE001), (0xFFFE, 0x10001), (0x10FFFE, 0x10FFFF)]
    members = charset(ranges)
    for node in (members, seq(optional(Literal("ab")), members)):
        tested = engine(node)
        for low, high in ranges:
            for scalar in {low - 1, low, low + 1, high - 1, high, high + 1} - {-1, 0x110000}:
                if not 0xD800 <= scalar <= 0xDFFF:
                    assert tested.accepts(chr(scalar)) == (scalar in members), hex(scalar)
    assert not tested.reaches(b"\xed\xa0")  # the bytes of a surrogate
    assert not tested.reaches(b"\xc0")  # never in UTF-8


def test_the_empty_string_and_the_empty_language() -> None:
    assert engine(EPSILON).accepts("")
    assert engine(Seq(())).legal("") == {STOP}
    for node in (NEVER, CharSet(()), Seq((Literal("a"), NEVER)), TokenSet(())):
        assert engine(node).legal("") == set()
    assert engine(Alt((CharSet(()), Literal("a")))).accepts("a")
    assert engine(Repeat(NEVER, 0, 3)).accepts("")


def test_dead_ends_are_not_written() -> None:
    """xgrammar makes one of all states without a way on: here that lets ``b`` follow ``c`` if they are written."""
    dead = TokenSet(())
    tested = engine(Alt((Seq((Literal("a"), dead)), Literal("ab"), Seq((Literal("c"), dead)))))
    assert tested.accepts("ab")
    assert not tested.reaches("c")


def test_tokens_by_id() -> None:
    two, three = 256, 257
    spelled = seq(TokenSet((three, two, two)), Literal("x"), repeat(TokenSet((two,), exclude=True)))
    tested = engine(spelled)
    assert tested.legal("") == {two, three}  # not the bytes of the same spelling
    assert tested.accepts_tokens([two, ord("x"), three, 0, STOP - 1])
    assert not tested.accepts_tokens([two, ord("x"), two])
    anything = engine(seq(TokenSet((), exclude=True), Literal("a")))
    assert anything.legal("") == set(range(STOP))
    assert anything.accepts_tokens([7, ord("a")])
    counted = engine(Repeat(Alt((TokenSet((two,)), Literal("a"))), 2, 3))
    assert counted.accepts_tokens([two, ord("a"), two])
    assert not counted.accepts_tokens([two])


def test_an_entry_rule_that_is_referred_to_has_full_masks() -> None:
    """xgrammar takes the end of the entry rule for the end of the text: without a wrapper ``))`` is refused here."""
    nested = Grammar({"root": Alt((seq(Literal("("), Ref("root"), Literal(")")), Literal("x")))})
    legal = Engine(emit(nested)).legal("((x")
    assert 256 + LONGER.index(b"))") in legal


@pytest.mark.parametrize(
    ("node", "inside", "outside"),
    [
        (optional(Repeat(Seq((Literal("a"), Literal("a"))), 1, None)), ["", "aa", "aaaa"], ["a", "aaa"]),
        (optional(seq(Literal("a"), repeat(Literal("a"), 1))), ["", "aa", "aaa"], ["a"]),
        (seq(optional(seq(repeat(Literal("a"), 1), Literal("b"))), Literal("c")), ["c", "aabc"], ["ac", "bc"]),
        (Repeat(seq(Literal("a"), optional(Literal("b"))), 2, None), ["aa", "abab", "aab"], ["a", "aabba", "abb"]),
        (seq(Literal("x"), repeat(alt(seq(chars("ab"), chars("c")), Literal("dd")), 2)), ["xacdd"], ["xac", "xdd"]),
    ],
)
def test_shapes_that_the_engine_gets_wrong_when_written_plainly(
    node: Node, inside: list[str], outside: list[str]
) -> None:
    tested = engine(node)
    assert [text for text in inside if not tested.accepts(text)] == []
    assert [text for text in outside if tested.accepts(text)] == []


COUNTS = [(0, None), (0, 1), (1, None), (1, 2), (2, 2), (2, None)]


def expressions(size: int) -> Iterator[Node]:
    """Every expression of ``size`` letters, loops and connectives, over the letters a and b."""
    if size == 1:
        yield from map(Literal, "ab")
    for item in expressions(size - 1) if size > 1 else ():
        if not isinstance(item, Repeat):
            yield from (Repeat(item, low, high) for low, high in COUNTS)
    for left in range(1, size - 1):
        for pair in itertools.product(expressions(left), expressions(size - 1 - left)):
            yield Seq(pair)
            yield Alt(pair)


def test_all_small_expressions_are_exact() -> None:
    """Each as a ``Regex``, also where plain EBNF would do."""
    texts = ["".join(word) for n in range(6) for word in itertools.product("ab", repeat=n)]
    pool = Pool()
    seen: dict[int, Node] = {id(node): node for size in range(1, 6) for node in map(pool.adopt, expressions(size))}
    assert len(seen) > 700
    for node in seen.values():
        tested = Engine(f"root ::= {regex_macro(node)}\n")
        assert {text for text in texts if tested.accepts(text)} == language(Grammar({"root": node}), "ab", 5), node


@settings(max_examples=300, deadline=None)
@given(regular_nodes("ab", leaves=12))
def test_choices_and_loops_of_few_letters_are_exact(node: Node) -> None:
    """With two letters most choices begin alike and most loops run into what follows."""
    pool = Pool()
    pooled = pool.adopt(node)
    texts = ["".join(word) for n in range(6) for word in itertools.product("ab", repeat=n)]
    if pooled is not pool.never:
        tested = Engine(f"root ::= {regex_macro(pooled)}\n")
        assert {text for text in texts if tested.accepts(text)} == language(Grammar({"root": node}), "ab", 5)


def test_the_fault_behind_the_empty_part_of_a_regex_is_still_there() -> None:
    """When this fails, xgrammar is repaired and the empty part can go."""
    assert Engine('root ::= Regex("a|a{1,2}")').accepts("aaa")


def test_nested_options_are_written_once_each() -> None:
    node: Node = Literal("a")
    for _ in range(40):
        node = optional(Seq((node, Literal("b"))))
    text = emit(Grammar({"root": Seq((Literal("<"), node))}))
    assert len(text) < 40 * 8
    assert Engine(text).accepts("<a" + "b" * 40)


@pytest.mark.parametrize("count", [2, MAX_REGEX_COUNT, MAX_REGEX_COUNT + 1, 300])
def test_counts_are_exact_on_both_sides_of_every_threshold(count: int) -> None:
    pair = alt(chars("ab"), Literal("cd"))
    for node, unit in ((pair, "cd"), (chars("ab"), "a"), (seq(Literal("("), chars("ab"), Literal(")")), "(b)")):
        exact, most = engine(Repeat(node, count, count)), engine(seq(Literal("<"), Repeat(node, 1, count)))
        for tested, start in ((exact, ""), (most, "<")):
            assert tested.accepts(start + unit * count)
            assert not tested.reaches(start + unit * (count + 1))
        assert not exact.accepts(unit * (count - 1))
        assert most.accepts("<" + unit)
        assert not most.accepts("<")


@pytest.mark.parametrize(
    "span", [(0, 129), (1, 130), (31, 160), (33, 161), (128, 191), (160, 160), (0, 192), (130, None)]
)
@pytest.mark.parametrize("unit", ["b", "dd"])
def test_blocks_of_rounds_leave_no_count_out(span: tuple[int, int | None], unit: str) -> None:
    item = chars("ab") if unit == "b" else alt(chars("ab"), Literal("dd"))
    ebnf = emit(Grammar({"root": Alt((seq(Literal("("), Ref("root"), Literal(")")), Repeat(item, *span)))}))
    tested = Engine(ebnf)
    assert "{32}" in ebnf
    low, high = span
    for count in range(200):
        assert tested.accepts(f"({unit * count})") == (low <= count <= (high or count)), count


def test_a_rule_that_counts_itself() -> None:
    """Plain ``r ::= r{0,2}`` overflows the stack of xgrammar's compiler."""
    grammar = Grammar({"root": Ref("r"), "r": Alt((Repeat(Ref("r"), 0, 2), Literal("a")))})
    tested = Engine(emit(grammar))
    assert tested.accepts("")
    assert tested.accepts("aaa")
    Engine(emit(Grammar({"root": Ref("r"), "r": Repeat(Ref("r"), 0, 2)})))


def test_deep_grammars_are_cut_into_rules() -> None:
    depth = 3 * sys.getrecursionlimit()
    node: Node = Ref("x")
    for _ in range(depth):
        node = Seq((Literal("("), Alt((node, Literal("y"))), Literal(")")))
    tested = Engine(emit(Grammar({"root": node, "x": Alt((Literal("z"), seq(Literal("<"), Ref("x"))))})))
    assert tested.accepts("(" * depth + "<<z" + ")" * depth)
    assert tested.accepts("(((y)))")
    assert not tested.reaches("(" * (depth + 1))


def test_intersections_are_refused() -> None:
    for node in (And((Literal("a"), chars("ab"))), seq(Literal("b"), Not(Literal("a")))):
        with pytest.raises(ValueError, match="intersection"):
            emit(Grammar({"root": node}))
