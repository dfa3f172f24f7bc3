"""Drafts of a grammar: what they are, that looking leaves no trace, and that the output's law stays exact."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from infernix_plugin.grammar.ir import Lexeme, Literal, TokenSet, alt, chars, repeat, seq
from infernix_plugin.matching import Outcome, Preparation
from infernix_plugin.spec_decode.grammar_drafts import GrammarDrafter, StyleTracker
from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger, mark_one_hot, one_hot_positions
from infernix_plugin.spec_decode.rejection import output_law
from infernix_plugin.structured_output.constrained import ConstrainedRequest
from tests.engine.engine_process import EngineProcess
from tests.matching.support import CONTROL, DOMAIN, ENGINES, PIECES, STOP, compiled, mask, replayed

engines = pytest.mark.parametrize("engine", ENGINES)
DRAFTER = GrammarDrafter(DOMAIN)
SPACE = Lexeme(repeat(chars(" \n"), 0, 2))
PAIRS = seq(
    Literal("{"), SPACE, Literal('"a"'), Literal(":"), SPACE, Lexeme(chars("1ab")),
    Literal(","), SPACE, Literal('"b"'), Literal(":"), SPACE, Literal("1"), Literal("}"),
)  # fmt: skip


def tokens(*pieces):
    return [PIECES.index(piece.encode()) for piece in pieces]


def request_of(engine, grammar):
    return ConstrainedRequest(Preparation(compiled(engine, grammar), Outcome.HIT, 0.0), kind="grammar")


@engines
def test_forced_text_is_split_by_longest_match(engine):
    drafts = request_of(engine, seq(Literal('{"ab":'), Lexeme(chars("1a")))).draft(DRAFTER, [], 7)
    assert drafts == tokens('{"', "ab", '":')


@engines
def test_a_token_that_a_free_text_could_extend_is_not_guessed(engine):
    """The last ``a`` could be the beginning of ``aa``, ``ab`` or of ``a"``."""
    assert request_of(engine, seq(Literal("{a"), Lexeme(chars("ab1")))).draft(DRAFTER, [], 7) == tokens("{")


@engines
def test_a_single_legal_marker_follows_the_text(engine):
    grammar = seq(Literal("1a"), TokenSet((CONTROL["<x>"],)))
    assert request_of(engine, grammar).draft(DRAFTER, [], 7) == [*tokens("1", "a"), CONTROL["<x>"]]


@engines
def test_the_end_is_proposed_where_nothing_else_is_legal(engine):
    assert request_of(engine, Literal("1a")).draft(DRAFTER, [], 7) == [*tokens("1", "a"), STOP]


@engines
def test_spaces_inside_forced_text_are_text(engine):
    assert request_of(engine, seq(Literal('a b":'), Lexeme(chars("1}")))).draft(DRAFTER, [], 7) == tokens(
        "a", " ", "b", '":'
    )


@engines
def test_whitespace_follows_the_output(engine):
    compact, spaced = request_of(engine, PAIRS), request_of(engine, PAIRS)
    assert compact.accept(tokens(*'{"a":1'))
    assert compact.draft(DRAFTER, [], 12) == [*tokens(",", '"', "b", '":', "1", "}"), STOP]
    assert spaced.accept(tokens(*'{"a": 1'))
    assert spaced.draft(DRAFTER, [], 12) == [*tokens(",", '"', "b", '":', " ", "1", "}"), STOP]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", b""),
        ("a", b""),
        ("a: 1, b:", b" "),
        ("a: 1, b: ", b""),
        ("a:\n\n1:", b"\n\n"),
        ("a:\n\n1:\n", b"\n"),
        ("a:1:", b""),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 99])
def test_style_of_what_was_written(text, rest, size):
    style = StyleTracker()
    for part in batches(text, size):
        style.observe("".join(part).encode())
    assert style.rest() == rest


def batches(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


@engines
def test_looking_leaves_the_session_as_it_was(engine):
    request = request_of(engine, PAIRS)
    written = tokens(*'{ "a":1, "b": 1}')
    for count, token in enumerate(written):
        before = mask(request.session)
        request.draft(DRAFTER, [], 7)
        assert mask(request.session) == before == mask(replayed(compiled(engine, PAIRS), written[:count]))
        assert request.accept([token])


@engines
def test_every_proposed_draft_is_legal(engine):
    request = request_of(engine, PAIRS)
    for token in tokens(*'{ "a":1, "b": 1}'):
        drafts = request.draft(DRAFTER, [], 7)
        rows = np.zeros((len(drafts) + 1, DOMAIN.mask_words), dtype=np.int32)
        request.session.lookahead(drafts, rows)
        assert all(rows[place][draft >> 5] >> (draft & 31) & 1 for place, draft in enumerate(drafts))
        assert request.accept([token])


def test_the_choice_ignores_the_sampled_drafts():
    grammar = seq(Literal(":"), Lexeme(chars("a1")))
    lengths = set()
    for sampled in itertools.product(tokens(":", "a", "1"), repeat=2):
        request = request_of("llguidance", grammar)
        drafts = request.draft(DRAFTER, list(sampled), 2)
        assert drafts == [*tokens(":"), sampled[1]]
        lengths.add(request.drafted(drafts))
    assert lengths == {0b1}


@pytest.mark.parametrize(("scheduled", "marks"), [(3, 0b11), (2, 0b11), (1, 0b1), (0, 0)])
def test_only_scheduled_drafts_are_marked(scheduled, marks):
    request = request_of("llguidance", seq(Literal("1:"), Lexeme(chars("ab"))))
    drafts = request.draft(DRAFTER, tokens("b", "b", "b"), 3)
    assert drafts == tokens("1", ":", "b")
    assert request.drafted(drafts[:scheduled]) == marks
    assert request.drafted(drafts) == 0, "a proposal counts for one step"


def test_other_drafts_are_not_marked():
    request = request_of("llguidance", Literal("1:"))
    request.draft(DRAFTER, [], 3)
    assert request.drafted(tokens("1", "1")) == 0


def test_nothing_is_proposed_where_the_grammar_leaves_a_choice():
    request = request_of("llguidance", alt(Literal("a1"), Literal("b1")))
    sampled = tokens("b", "1")
    assert request.draft(DRAFTER, sampled, 3) is sampled
    assert request.drafted(sampled) == 0


def law_of(p, q, *, marked):
    """Law of the first two output tokens, over all sampled drafts; the second comes from p where verification stops."""
    law = np.zeros((DOMAIN.vocab_size, DOMAIN.vocab_size))
    for sampled in itertools.product(np.flatnonzero(q[0]), np.flatnonzero(q[1])):
        chance = q[0][sampled[0]] * q[1][sampled[1]]
        request = request_of("llguidance", seq(SPACE, Literal(":"), Lexeme(chars("a1"))))
        drafts = request.draft(DRAFTER, [int(token) for token in sampled], 2)
        plan = SimpleNamespace()
        if marked:
            mark_one_hot(plan, "r", request.drafted(drafts))
        ledger = ProposalLedger()
        ledger.record(["r"], Proposal(torch.tensor(q).unsqueeze(0)))
        step = ledger.step(["r"], [2], one_hot_positions(plan))
        proposals = [
            np.eye(DOMAIN.vocab_size)[draft] if step.one_hot[place] else q[place] for place, draft in enumerate(drafts)
        ]
        for output, probability in output_law([p[0], p[1], p[1]], proposals, drafts).items():
            if len(output) == 1:
                law[output[0]] += chance * probability * p[1]
            else:
                law[output[0], output[1]] += chance * probability
    return law


@pytest.mark.parametrize("weight", [0.05, 0.5, 1.0])
def test_the_output_keeps_its_law(weight):
    """The guess ``:`` is not certain (whitespace is legal) and is also a draft that the drafter samples."""
    p, q = np.zeros((2, DOMAIN.vocab_size)), np.zeros((2, DOMAIN.vocab_size))
    p[0, tokens(":", " ")] = [weight, 1 - weight]
    p[1, tokens("a", "1")] = [0.3, 0.7]
    q[0, tokens(":", " ", "b")] = [0.6, 0.3, 0.1]
    q[1, tokens("a", "1", "b")] = [0.5, 0.2, 0.3]
    expected = np.outer(p[0], p[1])
    np.testing.assert_allclose(law_of(p, q, marked=True), expected, atol=1e-12)
    if weight == 0.5:
        assert np.abs(law_of(p, q, marked=False) - expected).max() > 0.05


SCHEMA = {
    "type": "object",
    "properties": {"customer_identifier": {"type": "integer"}, "is_gift_wrapped": {"type": "boolean"}},
    "required": ["customer_identifier", "is_gift_wrapped"],
    "additionalProperties": False,
}


@pytest.mark.engine
def test_greedy_output_is_the_same_in_fewer_steps(tiny_model):
    texts, per_step = [], []
    for wanted in (False, True):
        engine = EngineProcess(
            str(tiny_model),
            environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            speculative_config={"method": "mtp", "num_speculative_tokens": 3},
            async_scheduling=False,
            disable_log_stats=False,
            additional_config={"infernix": {"grammar_drafts": wanted, "max_whitespace": 1}},
        )
        request = {"structured": {"json": SCHEMA}, "options": {"temperature": 0.0, "max_tokens": 120}}
        try:
            outputs = engine.generate([{"prompt": f"river tree {number}", **request} for number in range(3)])
            steps = engine.counter("vllm:spec_decode_num_drafts")
            per_step.append(1 + engine.counter("vllm:spec_decode_num_accepted_tokens") / steps)
        finally:
            engine.close()
        texts.append([completion["text"] for (completion,) in outputs])
    assert texts[0] == texts[1]
    assert per_step[1] > per_step[0]
