"""Masks that are remembered by position: always the engine's own, and asked of the engine once."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.ir import Grammar, Lexeme, Literal, Node, Ref, alt, charset, optional, repeat, seq
from infernix_plugin.matching import CompiledGrammar, ConstraintCompiler, MaskState, Session
from infernix_plugin.matching.memo.account import ALLOWANCE, Account
from infernix_plugin.matching.memo.machine import LOST
from infernix_plugin.matching.memo.masks import KnownMask
from infernix_plugin.matching.memo.matcher import RememberedGrammar, _Matcher
from infernix_plugin.matching.memo.memory import Memory
from tests.matching.support import DOMAIN, PIECES, RememberingEngine, compiled, mask, new_row, random_walk
from tests.oracles import ir_strategies

STRING = Lexeme(seq(Literal('"'), repeat(charset([(32, 33), (35, 91), (93, 0x10FFFF)])), Literal('"')))
LISTS = Grammar(
    {
        "root": seq(Literal("["), optional(seq(Ref("value"), repeat(seq(Literal(","), Ref("value"))))), Literal("]")),
        "value": alt(Ref("root"), STRING),
    }
)
SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "integer", "maximum": 11}}},
    {
        "type": "object",
        "properties": {"ab": {"enum": ["a", "ab", 1]}},
        "required": ["ab"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "string", "pattern": "^(a|ab)*$"}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"type": "string", "minLength": 2}, {"type": "array", "items": {"$ref": "#"}}, {"const": 11}]},
    {"type": "object", "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": {"type": "array"}},
]


def ids_of(*pieces: bytes) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


class Counted:
    """An engine's grammar that counts what it is asked."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.fills = self.forks = 0

    def matcher(self) -> Any:
        return _CountedMatcher(self, self.inner.matcher())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _CountedMatcher:
    def __init__(self, counts: Counted, inner: Any) -> None:
        self._counts, self._inner = counts, inner

    def fill(self, row: np.ndarray) -> np.ndarray:
        self._counts.fills += 1
        return self._inner.fill(row)

    def fork(self) -> Any:
        self._counts.forks += 1
        return _CountedMatcher(self._counts, self._inner.fork())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def remembered(grammar: Grammar, memory: int = 1 << 24) -> tuple[CompiledGrammar, Counted]:
    program = CompiledGrammar(DOMAIN, RememberingEngine(memory).compile(grammar))
    made = program._grammar
    assert isinstance(made, RememberedGrammar)
    made.inner = counts = Counted(made.inner)
    return program, counts


def agree(one: Session, other: Session) -> set[int]:
    found = mask(one)
    assert found == mask(other)
    assert one.complete == other.complete
    return found[1] if found[0] is MaskState.READY else set()


def walk_together(one: CompiledGrammar, other: CompiledGrammar, rng: random.Random, steps: int = 14) -> None:
    left, right = one.session(), other.session()
    for _ in range(steps):
        allowed = agree(left, right)
        if not allowed:
            return
        token = rng.choice(sorted(allowed))
        assert left.accept(token)
        assert right.accept(token)


def test_a_place_is_asked_of_the_engine_once_whatever_was_written_before() -> None:
    program, counts = remembered(LISTS)
    session = program.session()
    for token in ids_of(b"[", b'"a', b"ab", b'"', b",", b'"', b"1", b'"', b"]"):
        mask(session)
        assert session.accept(token)
    mask(session)
    asked = counts.fills
    session = program.session()
    for token in ids_of(b"[", b'"', b"ba", b"1", "é中".encode(), b'a"', b",", b'"a', b'"', b"]"):
        mask(session)
        assert session.accept(token)
    mask(session)
    assert counts.fills == asked
    session = program.session()
    for token in ids_of(b"[", b"["):
        mask(session)
        assert session.accept(token)
    mask(session)
    assert counts.fills == asked + 1


def test_known_drafts_need_no_fork_of_the_engine() -> None:
    program, counts = remembered(LISTS)
    drafts = ids_of(b"[", b'"a', b"ab", b'"', b",")
    rows, again = new_row(6), new_row(6)
    first = program.session().lookahead(drafts, rows)
    forks = counts.forks
    assert forks > 0
    session = program.session()
    assert session.lookahead(drafts, again) == first
    assert np.array_equal(rows, again)
    assert counts.forks == forks
    assert session.preview(drafts) == len(drafts)
    session.discard()
    assert session.lookahead(drafts, again) == first
    assert np.array_equal(rows, again)


@pytest.mark.parametrize("memory", [3000, 1 << 24])
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_masks_of_schemas_are_the_engines_own(schema: dict[str, Any], memory: int) -> None:
    constraint = OutputConstraint.json_schema(json.dumps(schema))
    made = ConstraintCompiler(DOMAIN).compile(constraint)
    assert isinstance(made._grammar, RememberedGrammar)
    grammar = made._grammar
    engine = RememberingEngine(memory)
    followed = CompiledGrammar(DOMAIN, engine.around(grammar))
    plain = CompiledGrammar(DOMAIN, grammar.inner)
    for seed in range(25):
        walk_together(followed, plain, random.Random(seed))
    assert engine.memory.bytes() <= memory + 2000  # what the last step added may be over it


@settings(max_examples=60)
@given(ir_strategies.boolean_nodes("ab1"), st.randoms(use_true_random=False))
def test_masks_of_intersections_and_complements_are_the_engines_own(node: Node, rng: random.Random) -> None:
    grammar = Grammar({"root": Lexeme(seq(Literal('"'), node, Literal('"')))})
    try:
        plain = compiled("llguidance", grammar)
    except UnsatisfiableConstraint:
        return
    followed = compiled("remembered", grammar)
    for _ in range(4):
        walk_together(followed, plain, rng, 8)


def test_an_engine_that_gives_up_is_heard_and_forgotten() -> None:
    program, counts = remembered(LISTS)
    opened = ids_of(b"[", b'"a')
    session = program.session()
    assert session.accept(opened[0])
    original = counts.inner

    class Failing:
        def matcher(self) -> Any:
            raise ConstraintTooLarge("over a limit")

        def __getattr__(self, name: str) -> Any:
            return getattr(original, name)

    fresh = program.session()
    mask(fresh)
    assert fresh.accept(opened[0])
    mask(fresh)
    assert fresh.accept(opened[1])
    counts.inner = Failing()
    late = program.session()
    for token in opened:
        assert mask(late)[0] is MaskState.READY
        assert late.accept(token)
    assert mask(late)[0] is MaskState.DEAD_END
    assert isinstance(late.engine_error, ConstraintTooLarge)
    counts.inner = original
    assert mask(late) == mask(fresh)


def test_threads_share_what_is_remembered() -> None:
    program, _ = remembered(LISTS, memory=4000)  # which is forgotten again and again
    plain = compiled("llguidance", LISTS)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            walk_together(program, plain, rng, 10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_memory_is_bounded_for_positions_without_end() -> None:
    counting = Grammar({"root": Lexeme(seq(Literal('"'), repeat(charset([(97, 98)]), 0, 5000), Literal('"')))})
    engine = RememberingEngine(50_000)
    program = CompiledGrammar(DOMAIN, engine.compile(counting))
    session = program.session()
    assert session.accept(PIECES.index(b'"'))
    most = 0
    for _ in range(400):
        mask(session)
        assert session.accept(PIECES.index(b"ab"))
        most = max(most, engine.memory.bytes())
    assert 25_000 < most < 52_000


def followed(session: Session) -> bool:
    """Whether the session finds masks by its place, after its first token."""
    assert session.accept(PIECES.index(b"["))
    matcher = session._matcher
    assert type(matcher).__module__ == _Matcher.__module__
    return matcher._place.state is not LOST


def test_every_session_is_followed_but_not_the_first_mask() -> None:
    made = ConstraintCompiler(DOMAIN).compile(OutputConstraint.json_schema('{"type": "array"}'))
    assert isinstance(made._grammar, RememberedGrammar)
    assert made._grammar.machine.bytes == 0
    assert followed(made.session())
    assert followed(made.session())
    assert made._grammar.machine.bytes > 0


def test_requests_that_come_together_are_all_followed() -> None:
    made = ConstraintCompiler(DOMAIN).compile(OutputConstraint.json_schema('{"type": "array"}'))
    sessions = [made.session() for _ in range(3)]
    assert all(map(followed, sessions))


def test_what_is_never_seen_again_costs_its_allowance_and_what_is_earns_it_back() -> None:
    account = Account()
    work = misses = 0
    while account.affords_miss(work):
        work += 12
        misses += 1
    assert work < ALLOWANCE
    assert misses > 20
    assert not account.affords_miss(work)
    assert any(account.enter_matcher() for _ in range(3))
    for _ in range(200):
        account.hit()
    for _ in range(50):
        work += 12
        assert account.affords_miss(work)


def test_a_grammar_in_debt_is_left_to_the_engine() -> None:
    account = Account()
    account.credit = -10 * ALLOWANCE
    assert not account.enter_matcher()


@pytest.mark.parametrize("credit", [0, 15, 30])
def test_a_session_goes_on_when_following_is_given_up(credit: int) -> None:
    program, _ = remembered(LISTS)
    plain = compiled("llguidance", LISTS)
    made = program._grammar
    assert isinstance(made, RememberedGrammar)
    made.account = Account()
    made.account.enter_matcher()
    made.account.enter_matcher()
    left, right = program.session(), plain.session()
    made.account.credit = credit
    for token in random_walk(plain, random.Random(3), 12):
        agree(left, right)
        assert left.accept(token) == right.accept(token)
        agree(left, right)
    assert made.account.credit < 0


@given(st.lists(st.integers(0, 4095), max_size=200), st.integers(1, 128))
def test_a_kept_mask_is_the_mask(tokens: list[int], words: int) -> None:
    row = np.zeros(words, dtype=np.int32)
    members = {token for token in tokens if token < 32 * words}
    for token in members:
        row.view(np.uint32)[token >> 5] |= np.uint32(1 << (token & 31))
    kept = KnownMask(row)
    copy = np.full(words, 0x5A5A5A5A, dtype=np.int32)
    kept.write(copy)
    assert np.array_equal(row, copy)
    assert {token for token in range(32 * words) if kept.allows(token)} == members
    row[:] = 0
    kept.write(copy)
    assert bool(copy.any()) == bool(members)


def test_what_is_remembered_is_counted_while_others_begin_to_remember():
    memory, failures = Memory(1), []

    class Member:
        bytes, spent_at = 2, 0

        def forget(self):
            self.bytes = 0

    def begin():
        members = []
        for _ in range(3000):
            members.append(Member())
            memory.watch(members[-1])

    def spend():
        try:
            for _ in range(300):
                memory.spend(2)
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=target) for target in (begin, spend, begin, spend)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_only_what_was_learnt_long_ago_is_forgotten():
    class Member:
        bytes = spent_at = 0

        def learn(self, size):
            self.bytes += size
            self.spent_at = memory.ever_spent
            memory.spend(size)

        def forget(self):
            self.bytes = 0

    memory = Memory(100)
    first, second, third = members = [Member() for _ in range(3)]
    for member in members:
        memory.watch(member)
        member.learn(30)
    first.learn(5)
    third.learn(10)
    assert [member.bytes for member in members] == [35, 0, 40]
    second.learn(60)
    assert [member.bytes for member in members] == [0, 60, 0]
    large = Member()
    memory.watch(large)
    large.learn(200)
    assert memory.bytes() == 0
