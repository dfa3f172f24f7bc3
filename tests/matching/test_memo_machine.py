"""The byte machine against the definition of a grammar: a state says what may still be written."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.grammar.ir import (
    ANY_CHAR,
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
    optional,
    repeat,
    seq,
)
from infernix_plugin.matching.memo.machine import LOST, Machine, State, Terminals
from infernix_plugin.matching.memo.memory import Memory
from tests.oracles import ir_matcher, ir_oracle, ir_strategies

TEXTS = ["".join(letters) for size in range(5) for letters in product("abé", repeat=size)]


def machine(grammar: Grammar | Node, budget: int = 1 << 24) -> Machine:
    if not isinstance(grammar, Grammar):
        grammar = Grammar({"root": grammar})
    return Machine(grammar.start, grammar.rules, Terminals(Memory(budget)))


def read(state: State | None, data: bytes) -> State | None:
    for byte in data:
        if state is None:
            return None
        state = state.after(byte)
    return state


def accepts(state: State | None) -> bool:
    return state is not None and state.accepting


@settings(max_examples=60)
@given(ir_strategies.grammars())
def test_states_accept_the_language_of_a_grammar(grammar: Grammar) -> None:
    start = machine(grammar).start()
    for text in TEXTS:
        state = read(start, text.encode())
        if state is LOST:
            continue  # left recursion, which no stack follows
        assert accepts(state) == ir_oracle.matches(grammar, text), text


@settings(max_examples=150)
@given(ir_strategies.boolean_nodes())
def test_states_accept_the_language_of_intersections_and_complements(node: Node) -> None:
    start = machine(Lexeme(node)).start()
    for text in TEXTS:
        state = read(start, text.encode())
        assert state is not LOST
        assert accepts(state) == ir_matcher.in_language(node, text), text


@settings(max_examples=40)
@given(ir_strategies.grammars(), st.integers(0, 4000))
def test_forgetting_at_any_moment_changes_nothing(grammar: Grammar, budget: int) -> None:
    start, lasting = machine(grammar, budget).start(), machine(grammar).start()
    for text in TEXTS[:40]:
        states = [read(state, text.encode()) for state in (start, lasting)]
        if LOST not in states:
            assert accepts(states[0]) == accepts(states[1]), text


@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x3000)), max_size=4), st.data())
def test_characters_are_read_as_utf8(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    letters = charset((low, low + width) for low, width in pairs)
    edges = [code + step for low, high in letters.ranges for code in (low, high) for step in (-1, 0, 1)]
    scalars = st.characters(codec="utf-8") | st.sampled_from(
        [chr(code) for code in edges if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000] or ["a"]
    )
    char = data.draw(scalars)
    state = read(machine(letters).start(), char.encode())
    assert accepts(state) == (ord(char) in letters)


def test_a_half_character_leaves_exactly_the_bytes_that_complete_it() -> None:
    for letters in (ANY_CHAR, charset([(0x7F, 0x801), (0xD000, 0xE0FF), (0xFFFF, 0x10002)])):
        start = machine(letters).start()
        legal = {b""}
        for length in range(1, 3):
            legal = {chr(code).encode()[:length] for low, high in letters.ranges for code in range(low, high + 1)}
            for head in {data[:-1] for data in legal if len(data) == length}:
                found = {byte for byte in range(256) if read(start, head + bytes([byte])) is not None}
                assert found == {data[-1] for data in legal if data[:-1] == head and len(data) == length}, head


def test_equal_places_are_one_state() -> None:
    item = Lexeme(seq(Literal('"'), repeat(charset([(32, 33), (35, 126)])), Literal('"')))
    grammar = Grammar(
        {
            "root": seq(
                Literal("["), optional(seq(Ref("value"), repeat(seq(Literal(","), Ref("value"))))), Literal("]")
            ),
            "value": alt(Ref("root"), item),
        }
    )
    start = machine(grammar).start()
    assert read(start, b'["a') is read(start, b'["long text')
    assert read(start, b'["a",') is read(start, b'["b","c",[],')
    assert read(start, b"[[") is not read(start, b"[")
    assert read(start, b"[[]") is read(start, b'[""')
    assert read(start, b"x") is None


def test_counted_rounds_are_told_apart_and_unbounded_ones_only_up_to_their_minimum() -> None:
    counted, least = machine(Repeat(chars("ab"), 1, 3)).start(), machine(Repeat(chars("ab"), 2, None)).start()
    assert len({read(counted, b"a" * count) for count in range(1, 4)}) == 3
    assert read(counted, b"aaaa") is None
    assert [accepts(read(least, b"a" * count)) for count in range(4)] == [False, False, True, True]
    assert read(least, b"aa") is read(least, b"abab")


def test_names_that_are_excluded_are_left_behind() -> None:
    name = Lexeme(
        And((seq(Literal('"'), repeat(chars("abcd")), Literal('"')), Not(alt(Literal('"ab"'), Literal('"cd"')))))
    )
    start = machine(name).start()
    assert not accepts(read(start, b'"ab"'))
    assert accepts(read(start, b'"abc"'))
    assert read(start, b'"b') is read(start, b'"bcdab')  # no excluded name can come of it


def test_tokens_match_by_bytes_or_by_id() -> None:
    grammar = Seq((Repeat(TokenSet((7,), exclude=True), 0, None), TokenSet((7,)), Literal("ab")))
    start = machine(grammar).start()
    assert start.over(5, b"xyz") is start
    assert start.over(6, b"") is start
    after = start.over(7, b"")
    assert after is not None
    assert not after.accepting
    assert after.over(7, b"") is None
    assert accepts(after.over(1, b"ab"))
    assert start.after(ord("a")) is None
    either = machine(alt(TokenSet((3,)), Literal("ab"))).start()
    assert accepts(either.over(3, b"a"))
    assert accepts(read(either.over(3, b"a"), b"b"))


def test_what_is_too_much_is_lost_for_good() -> None:
    left = Grammar({"root": alt(seq(Ref("root"), Literal("a")), Literal("b"))})
    assert machine(left).start() is LOST
    wide = machine(seq(Literal("x"), alt(*(Literal(f"{number:04}") for number in range(1000))))).start()
    assert read(wide, b"x") is LOST
    assert read(wide, b"x0001") is LOST


def test_deep_nodes_do_not_overflow_the_stack() -> None:
    node: Node = Literal("a")
    for _ in range(3000):
        node = Not(And((node, ANY_CHAR)))
    state = machine(Lexeme(node)).start()
    assert state is LOST or isinstance(state.after(ord("a")), State)


def test_memory_is_bounded_and_what_is_gone_does_not_count() -> None:
    memory = Memory(40_000)
    terminals = Terminals(memory)
    letters: CharSet = charset([(32, 126)])
    counting = Machine(Repeat(letters, 0, 100_000), {}, terminals)
    state: State | None = counting.start()
    most = 0
    for _ in range(2000):
        state = read(state, b"x")
        most = max(most, counting.bytes)
    assert accepts(state)
    assert 10_000 < most <= 40_000
    del counting, state
    small = Machine(repeat(letters), {}, terminals)
    first = small.start()
    for _ in range(100):
        assert read(first, b"x") is read(first, b"y")
