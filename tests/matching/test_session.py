"""The transaction: whatever is tried and taken back, a session is what a replay of its committed tokens is."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import ConstraintTooLarge, InvalidContinuation
from infernix_plugin.grammar.ir import Grammar, Lexeme, Literal, Ref, TokenSet, alt, chars, optional, repeat, seq
from infernix_plugin.matching import CompiledGrammar, MaskState, Session, TokenDomain
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.meter import Allowance
from infernix_plugin.matching.engines.xgrammar import XgrammarEngine
from tests.matching.support import (
    CONTROL,
    DOMAIN,
    ENGINES,
    PIECES,
    STOP,
    compiled,
    ids,
    mask,
    new_row,
    random_walk,
    replayed,
)

X = CONTROL["<x>"]
SPACE = Lexeme(repeat(chars(" \n"), 0, 2))
STRING = Lexeme(seq(Literal('"'), repeat(alt(chars("abé中: "), seq(Literal("\\"), chars('"\\')))), Literal('"')))
LIST = seq(
    Literal("["), SPACE, optional(seq(Ref("value"), SPACE, repeat(seq(Literal(","), SPACE, Ref("value"), SPACE))))
)
JSON = Grammar(
    {
        "root": seq(repeat(TokenSet((X,), exclude=True)), TokenSet((X,)), Literal("\n\n"), Ref("value"), SPACE),
        "value": alt(STRING, Literal("1"), Literal("{}"), seq(LIST, Literal("]"))),
    }
)
PROGRAMS = {engine: compiled(engine, JSON) for engine in ENGINES}
READY, DEAD_END, UNREACHABLE = MaskState.READY, MaskState.DEAD_END, MaskState.UNREACHABLE

engines = pytest.mark.parametrize("engine", ENGINES)


def same(left: Session, right: Session) -> None:
    assert mask(left) == mask(right)
    assert (left.complete, left.terminated) == (right.complete, right.terminated)


def start(program: CompiledGrammar, rng: random.Random) -> list[int]:
    """A legal beginning, usually past the control token, sometimes past the stop token."""
    thinking = [PIECES.index(b"a")] * rng.randrange(3)
    newline = PIECES.index(b"\n")
    opened = [*thinking, X, newline, newline]
    session = replayed(program, opened)
    for _ in range(rng.randrange(12)):
        state, allowed = mask(session)
        if state is not READY:
            break
        opened.append(rng.choice(sorted(allowed)))
        session.accept(opened[-1])
    return opened


def drafts_from(program: CompiledGrammar, tokens: list[int], rng: random.Random) -> list[int]:
    """Up to 15 drafts, mostly legal, with an illegal or impossible one somewhere in half of the cases."""
    session = replayed(program, tokens)
    drafts: list[int] = []
    for _ in range(rng.randrange(16)):
        state, allowed = mask(session)
        wild = [-1, DOMAIN.vocab_size, 1 << 40, rng.randrange(DOMAIN.vocab_size)]
        drafts.append(rng.choice(wild) if state is not READY or rng.random() < 0.05 else rng.choice(sorted(allowed)))
        session.accept(drafts[-1])
    return drafts


@engines
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_lookahead_rows_are_the_masks_of_the_replayed_prefixes(engine: str, seed: int) -> None:
    program, rng = PROGRAMS[engine], random.Random(seed)
    tokens = start(program, rng)
    drafts = drafts_from(program, tokens, rng)
    session = replayed(program, tokens)
    rows = new_row(len(drafts) + 3)
    untouched = rows[len(drafts) + 1 :].copy()
    states = session.lookahead(drafts, rows)

    assert len(states) == len(drafts) + 1
    replay = replayed(program, tokens)
    reached = True
    for row, state, draft in zip(rows, states, [*drafts, None], strict=False):
        expected, allowed = mask(replay)
        if not reached or expected is UNREACHABLE:
            assert state is UNREACHABLE
            assert ids(row)
            continue
        assert state is expected
        assert ids(row) == allowed
        reached = draft is not None and draft in allowed and state is READY and replay.accept(draft)
    assert np.array_equal(rows[len(drafts) + 1 :], untouched)
    same(session, replayed(program, tokens))


@engines
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_any_sequence_of_operations_leaves_the_committed_position(engine: str, seed: int) -> None:
    program, rng = PROGRAMS[engine], random.Random(seed)
    committed = start(program, rng)
    session = replayed(program, committed)
    for _ in range(8):
        drafts = drafts_from(program, committed, rng)
        match rng.choice(["lookahead", "discard", "commit", "accept"]):
            case "lookahead":
                session.lookahead(drafts, new_row(len(drafts) + 1))
            case "discard":
                session.preview(drafts)
                session.discard()
            case "commit":
                taken = session.preview(drafts)
                session.commit()
                committed += drafts[:taken]
            case "accept":
                for draft in drafts[:2]:
                    if session.accept(draft):
                        committed.append(draft)
        same(session, replayed(program, committed))


def test_engines_agree_along_random_walks() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        walk = start(PROGRAMS["xgrammar"], rng)
        one, *others = (program.session() for program in PROGRAMS.values())
        for token in walk:
            for other in others:
                same(one, other)
            assert all(session.accept(token) for session in (one, *others))
        for other in others:
            same(one, other)


@engines
def test_stop_is_allowed_exactly_where_the_language_may_end(engine: str) -> None:
    session = compiled(engine, Grammar({"root": seq(Literal("a"), repeat(Literal("b"), 0, 1))})).session()
    assert STOP not in mask(session)[1]
    assert not session.accept(STOP)
    assert not session.complete
    session.accept(PIECES.index(b"a"))
    assert mask(session)[1] == {PIECES.index(b"b"), STOP}
    assert session.complete
    assert not session.terminated
    assert session.accept(STOP)
    assert session.complete
    assert session.terminated
    assert mask(session)[0] is UNREACHABLE
    assert not session.accept(STOP)
    assert not session.accept(PIECES.index(b"b"))


@engines
def test_after_a_drafted_stop_nothing_is_reachable(engine: str) -> None:
    session = compiled(engine, Literal("a")).session()
    a = PIECES.index(b"a")
    rows = new_row(5)
    assert session.lookahead([a, STOP, a, STOP], rows) == [READY, READY, UNREACHABLE, UNREACHABLE, UNREACHABLE]
    assert not session.terminated
    assert session.preview([a, STOP, a]) == 2
    assert session.terminated
    session.discard()
    assert not session.terminated
    assert session.preview([a, STOP]) == 2
    session.commit()
    assert session.terminated
    assert session.lookahead([a], rows) == [UNREACHABLE, UNREACHABLE]
    assert session.preview([a]) == 0
    session.discard()
    assert session.terminated


@engines
def test_a_dead_end_of_the_vocabulary_is_a_row_state_and_can_be_left_again(engine: str) -> None:
    """``z`` is in no token: after ``ab`` the language goes on, the vocabulary does not."""
    session = compiled(engine, Lexeme(alt(Literal("abz"), Literal("aa")))).session()
    a, b = PIECES.index(b"a"), PIECES.index(b"b")
    rows = new_row(4)
    assert session.lookahead([a, b, b], rows) == [READY, READY, DEAD_END, UNREACHABLE]
    assert all(ids(row) for row in rows)
    assert STOP not in ids(rows[2])
    assert session.lookahead([a, a], rows) == [READY, READY, READY]
    assert session.accept(a)
    assert session.accept(b)
    assert mask(session)[0] is DEAD_END
    assert not session.accept(a)


@engines
@pytest.mark.parametrize("token", [-1, -(1 << 40), DOMAIN.vocab_size, 1 << 40, CONTROL["<|image_pad|>"], len(PIECES)])
def test_impossible_tokens_are_illegal(engine: str, token: int) -> None:
    session = compiled(engine, repeat(TokenSet((X,), exclude=True))).session()
    before = mask(session)
    assert not session.accept(token)
    assert session.preview([token]) == 0
    session.discard()
    rows = new_row(3)
    assert session.lookahead([token, 0], rows) == [READY, UNREACHABLE, UNREACHABLE]
    assert session.counters.illegal_drafts == 1
    assert mask(session) == before


@engines
def test_numpy_integers_are_tokens(engine: str) -> None:
    session = compiled(engine, Literal("aa")).session()
    drafts = np.array([PIECES.index(b"a"), PIECES.index(b"a")], dtype=np.int32)
    assert session.lookahead(drafts, new_row(3)) == [READY] * 3
    assert session.accept(drafts[0])
    assert session.preview(drafts) == 1


@engines
def test_an_open_preview_excludes_everything_else(engine: str) -> None:
    session = compiled(engine, Literal("aa")).session()
    a = PIECES.index(b"a")
    for forbidden in (session.commit, session.discard):
        with pytest.raises(RuntimeError):
            forbidden()
    session.preview([])
    for refused in (
        lambda: session.fill_mask(new_row()),
        lambda: session.lookahead([a], new_row(2)),
        lambda: session.accept(a),
        lambda: session.preview([a]),
    ):
        with pytest.raises(RuntimeError, match="preview"):
            refused()
    session.commit()
    assert session.accept(a)


@engines
@pytest.mark.parametrize("cut", range(len('["é", "中a"]'.encode()) + 1))
def test_a_prefix_may_end_inside_a_character(engine: str, cut: int) -> None:
    text = '["é", "中a"]'.encode()
    program = compiled(engine, Grammar({**JSON.rules, "root": Ref("value")}))
    session = program.session(text[:cut])
    for byte in text[cut:]:
        token = DOMAIN.byte_token(byte)
        if token is None:
            break
        assert session.accept(token)
    else:
        assert session.complete
    assert session.complete == (cut == len(text)) or cut < len(text)


@engines
def test_masks_after_a_prefix_are_those_after_its_tokens(engine: str) -> None:
    program = compiled(engine, Grammar({**JSON.rules, "root": Ref("value")}))
    tokens = [PIECES.index(piece) for piece in (b"[", b'"a', b"\xc3")]
    same(program.session(b'["a\xc3'), replayed(program, tokens))


@engines
@pytest.mark.parametrize(("prefix", "offset"), [(b"]", 0), (b'["a"1', 4), (b'["\xc3"', 3), (b"[]\xff", 2)])
def test_an_illegal_prefix_is_located_by_byte(engine: str, prefix: bytes, offset: int) -> None:
    program = compiled(engine, Grammar({**JSON.rules, "root": Ref("value")}))
    with pytest.raises(InvalidContinuation) as error:
        program.session(prefix)
    assert error.value.location == f"offset {offset}"


@engines
def test_counters_count_work_that_was_done(engine: str) -> None:
    session = compiled(engine, Literal("aaa")).session()
    a = PIECES.index(b"a")
    session.lookahead([a, PIECES.index(b"b"), a], new_row(4))
    session.fill_mask(new_row())
    session.accept(a)
    counters = session.counters
    assert (counters.mask_positions, counters.illegal_drafts) == (3, 1)
    assert counters.mask_seconds > 0
    assert counters.accept_seconds > 0


def test_an_engine_that_gives_up_makes_a_dead_end_and_recovers() -> None:
    """Too many automaton states for one mask: the row is dead, the position before it is intact."""
    huge = Lexeme(seq(repeat(chars("ab")), Literal("a"), repeat(chars("ab"), 60, 60)))
    program = compiled("llguidance", huge)
    session = program.session()
    calls = []

    class Failing:
        """Gives up at its second mask, counted over all forks."""

        def __init__(self, matcher: Any) -> None:
            self._inner = matcher

        def fill(self, row: np.ndarray) -> np.ndarray:
            calls.append(row)
            if len(calls) == 2:
                raise ConstraintTooLarge("over a limit")
            return self._inner.fill(row)

        def fork(self) -> Any:
            return Failing(self._inner.fork())

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    matcher = session._matcher
    session._matcher = Failing(matcher)
    a = PIECES.index(b"a")
    assert session.lookahead([a, a, a], new_row(4)) == [READY, READY, DEAD_END, UNREACHABLE]
    assert isinstance(session.engine_error, ConstraintTooLarge)
    session._matcher = matcher
    same(session, program.session())


def test_llguidance_recovers_from_its_error_state() -> None:
    program = compiled("llguidance", Lexeme(repeat(chars("ab"), 0, 9)))
    session = replayed(program, [PIECES.index(b"a")])
    before = mask(session)
    assert session._matcher._matcher.consume_token(PIECES.index(b"1")) is False  # for good, as llguidance has it
    assert session._matcher._matcher.is_error()
    assert not session.accept(PIECES.index(b"1"))
    assert mask(session) == before


@pytest.mark.parametrize("kind", [XgrammarEngine, LlguidanceEngine])
def test_a_vocabulary_without_stop_or_control_tokens(kind: type) -> None:
    domain = TokenDomain([b"a", b"b"])
    more = {"cache_bytes": 1 << 20} if kind is XgrammarEngine else {}
    engine = kind(domain, allowance=Allowance(0.1, 2.0), **more)
    session = CompiledGrammar(domain, engine.compile(Grammar({"root": Literal("a")}))).session()
    row = np.zeros(1, dtype=np.int32)
    assert session.fill_mask(row) is READY
    assert ids(row) == {0}
    session.accept(0)
    assert session.complete
    assert session.fill_mask(row) is DEAD_END


@engines
def test_random_walks_end_in_members(engine: str) -> None:
    texts = {"a", "ab", "é中"}
    program = compiled(engine, Lexeme(alt(*map(Literal, sorted(texts)))))
    for seed in range(20):
        walk = random_walk(program, random.Random(seed), 20)
        assert walk[-1] == STOP
        assert b"".join(DOMAIN.token_bytes(token) for token in walk[:-1]).decode() in texts
