"""What a grammar will cost is known before its native work begins, and what its masks cost ends one request only."""

import json
import random

import numpy as np
import pytest

from infernix_plugin import ConstraintCompiler, ConstraintTooLarge, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.engines import meter, rehearsal

OPTIONS = GrammarOptions()


def pieces() -> list[bytes]:
    """All bytes and 60,000 random words: a vocabulary in which slow grammars are slow."""
    rng = random.Random(0)
    words = {"".join(rng.choices("etaoinsrhd((  ", k=rng.randint(2, 9))) for _ in range(60_000)}
    words |= {"(" * length for length in range(2, 10)}
    return [bytes([byte]) for byte in range(256)] + [word.encode() for word in sorted(words)] + [b"<end>"]


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    vocabulary = pieces()
    end = len(vocabulary) - 1
    return ConstraintCompiler(TokenDomain(vocabulary, control={"<end>": end}, stop=[end]), max_compile_seconds=2)


AMBIGUOUS = {
    "any character anywhere": 'root ::= . root . | . root | root . | ""',
    "doubled loops": 'root ::= a "x" | root root\na ::= a a | b a b | [a-z]*\nb ::= b? [a-z] b? | "" ',
}


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguity_that_costs_seconds_for_each_mask_is_refused(compiler, text):
    with pytest.raises(ConstraintTooLarge, match=r"masks of this grammar"):
        compiler.compile(OutputConstraint.grammar(text))


def test_rules_text_and_token_terminals_are_bounded(compiler, monkeypatch):
    monkeypatch.setattr(rehearsal, "MAX_RULES", 100)
    nested = 'root ::= "(" root ")" | '
    many = "root ::= r0\n" + "\n".join(
        f'r{i} ::= "(" r{(i * 7 + 1) % 200} ")" | [a-z]+ "{i}" r{(i * 13 + 5) % 200} | "x"' for i in range(200)
    )
    tokens = nested + " | ".join(f"ExcludeToken({token}) Token({token + 1})" for token in range(300, 400))
    for text, what in ((many, "rules"), (nested + f'"{"ab" * 200_000}"', "characters"), (tokens, "token terminals")):
        with pytest.raises(ConstraintTooLarge, match=f"needs [0-9]+ .*{what}.*; the most is"):
            compiler.compile(OutputConstraint.grammar(text))


@pytest.mark.parametrize(
    "compile_times", [(1.0, 1.0, 1.0, 1.0 + 1.5 / 30), (1.0, 1.0, 1.0 + 1.5 / 16), (1.0, 1.0 + 1.5 / 16)]
)
def test_the_estimate_is_compared_with_the_compile_limit(compiler, monkeypatch, compile_times):
    """Refused after the last of these times: nothing asks for another."""
    times = iter(compile_times)

    def rehearse(self, small, run, seconds):
        run(small)
        return next(times)

    monkeypatch.setattr(rehearsal.Rehearsal, "_rehearse", rehearse)
    with pytest.raises(ConstraintTooLarge, match=r"compiled for [23] s or longer; max_compile_seconds is 2"):
        compiler.compile(OutputConstraint.grammar(f'root ::= "[" root "]" | "{len(compile_times)}"'))
    assert next(times, None) is None


def test_a_row_of_classes_is_refused_before_it_is_compiled(compiler, monkeypatch):
    monkeypatch.setattr(budget, "monotonic", lambda: 0.0)  # so that the estimate refuses it, not the clock
    with pytest.raises(ConstraintTooLarge, match=r"compiled for [0-9]+ s or longer; max_compile_seconds is 2"):
        compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | ' + "[a-z]+ [0-9]* " * 1000))


def test_a_structural_tag_has_the_same_bounds(compiler):
    def tag(form: dict) -> str:
        return json.dumps({"type": "structural_tag", "format": form})

    with pytest.raises(ConstraintTooLarge, match=r"masks of this grammar|compiled for"):
        compiler.compile_structural_tag(tag({"type": "grammar", "grammar": AMBIGUOUS["doubled loops"]}))
    with pytest.raises(ConstraintTooLarge, match="max_grammar_bytes"):
        compiler.compile_structural_tag(tag({"type": "const_string", "value": "a" * (1 << 20)}))


def test_masks_over_the_allowance_end_this_request_and_no_other(compiler, monkeypatch):
    compiled = compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | "x"'))
    slow, other = compiled.session(), compiled.session()
    row = np.zeros(compiler.domain.mask_words, dtype=np.int32)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += OPTIONS.max_mask_seconds + OPTIONS.max_excess_seconds / 4.5
        return now

    paren = compiler.domain.byte_token(ord("("))
    states = []
    for _ in range(5):
        assert slow.accept(paren)
        with monkeypatch.context() as patch:
            patch.setattr(meter, "thread_time", clock)
            states.append(slow.fill_mask(row))
    assert states == [MaskState.READY] * 4 + [MaskState.DEAD_END]
    assert isinstance(slow.engine_error, ConstraintTooLarge)
    assert slow.fill_mask(row) is MaskState.DEAD_END  # it stays over
    assert not slow.accept(paren)
    assert other.accept(paren)
    assert other.fill_mask(row) is MaskState.READY
    assert other.engine_error is None


def test_forks_pay_from_the_same_allowance(compiler, monkeypatch):
    matcher = compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | "x"')).new_matcher()
    row = np.zeros(compiler.domain.mask_words, dtype=np.int32)
    times = iter([0.0, OPTIONS.max_mask_seconds + OPTIONS.max_excess_seconds + 1.0, 0.0])
    monkeypatch.setattr(meter, "thread_time", lambda: next(times))
    with pytest.raises(ConstraintTooLarge):
        matcher.fork().fill(row)
    with pytest.raises(ConstraintTooLarge):
        matcher.fill(row)


def test_tokens_and_written_text_are_paid_for_too(compiler, monkeypatch):
    compiled = compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | "x"'))
    session, paren = compiled.session(), compiler.domain.byte_token(ord("("))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += OPTIONS.max_excess_seconds * 0.4
        return now

    monkeypatch.setattr(meter, "thread_time", clock)
    assert [session.accept(paren) for _ in range(4)] == [True, True, True, False]
    assert isinstance(session.engine_error, ConstraintTooLarge)
    compiled.session(b"(((")
    with pytest.raises(ConstraintTooLarge):
        compiled.session(b"((((")
