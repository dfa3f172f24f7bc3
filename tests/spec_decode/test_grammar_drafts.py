"""Drafts of a grammar: what they are, that looking leaves no trace, and that the output's law stays exact."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.grammar.ir import Lexeme, Literal, TokenSet, alt, chars, repeat, seq
from infernix_plugin.matching import Outcome, Preparation
from infernix_plugin.model_executor.tiny.tokenizer import train
from infernix_plugin.spec_decode.grammar_drafts import GrammarDrafter, RequestDrafter, Written
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
    prepared = Preparation(compiled(engine, grammar), Outcome.HIT, 0.0)
    return ConstrainedRequest(prepared, kind="grammar", drafter=RequestDrafter(DRAFTER))


@engines
def test_forced_text_is_split_by_longest_match(engine):
    drafts = request_of(engine, seq(Literal('{"ab":'), Lexeme(chars("1a")))).draft([], 7)
    assert drafts == tokens('{"', "ab", '":')


@engines
def test_a_token_that_a_free_text_could_extend_is_not_guessed(engine):
    """The last ``a`` could be the beginning of ``aa``, ``ab`` or of ``a"``."""
    assert request_of(engine, seq(Literal("{a"), Lexeme(chars("ab1")))).draft([], 7) == tokens("{")


@engines
def test_a_single_legal_marker_follows_the_text(engine):
    grammar = seq(Literal("1a"), TokenSet((CONTROL["<x>"],)))
    assert request_of(engine, grammar).draft([], 7) == [*tokens("1", "a"), CONTROL["<x>"]]


@engines
def test_the_end_is_proposed_where_nothing_else_is_legal(engine):
    assert request_of(engine, Literal("1a")).draft([], 7) == [*tokens("1", "a"), STOP]


@engines
def test_spaces_inside_forced_text_are_text(engine):
    assert request_of(engine, seq(Literal('a b":'), Lexeme(chars("1}")))).draft([], 7) == tokens("a", " ", "b", '":')


@engines
def test_whitespace_follows_the_output(engine):
    compact, spaced = request_of(engine, PAIRS), request_of(engine, PAIRS)
    assert compact.accept(tokens(*'{"a":1'))
    assert compact.draft([], 12) == [*tokens(",", '"', "b", '":', "1", "}"), STOP]
    assert spaced.accept(tokens(*'{"a": 1'))
    assert spaced.draft([], 12) == [*tokens(", ", '"', "b", '":', " ", "1", "}"), STOP]


@engines
def test_without_a_drafter_the_drafts_stay(engine):
    request = ConstrainedRequest(Preparation(compiled(engine, PAIRS), Outcome.HIT, 0.0), kind="grammar")
    sampled = tokens("b", "1")
    assert request.draft(sampled, 3) is sampled
    assert request.drafted(sampled) == 0


@engines
def test_whitespace_comes_before_a_choice(engine):
    request = request_of(engine, seq(Literal(":"), SPACE, Lexeme(chars("1a"))))
    assert request.draft([], 7) == tokens(":", " ")


@engines
def test_text_before_a_marker_is_another_text(engine):
    """The quotation mark would hide the layout from then on."""
    grammar = seq(Literal('a"'), TokenSet((CONTROL["<x>"],)), Literal(":"), SPACE, Literal("1"))
    request = request_of(engine, grammar)
    assert request.accept([*tokens("a", '"'), CONTROL["<x>"]])
    assert request.draft([], 7) == [*tokens(":", " ", "1"), STOP]


@engines
def test_content_of_the_prompt_counts_as_written(engine):
    """It ends inside a string, and shows the layout."""
    grammar = seq(PAIRS, Literal('"a",'), SPACE, Literal("1"))
    before = b'{"a":1,"b":1}"'
    session = compiled(engine, grammar).session(before)
    prepared = Preparation(compiled(engine, grammar), Outcome.HIT, 0.0)
    request = ConstrainedRequest(
        prepared, kind="grammar", session=session, drafter=RequestDrafter(DRAFTER, before=before)
    )
    assert request.draft([], 7) == [*tokens('a"', ",", "1"), STOP]


@engines
def test_looking_leaves_the_session_as_it_was(engine):
    request = request_of(engine, PAIRS)
    written = tokens(*'{ "a":1, "b": 1}')
    for count, token in enumerate(written):
        before = mask(request.session)
        request.draft([], 7)
        assert mask(request.session) == before == mask(replayed(compiled(engine, PAIRS), written[:count]))
        assert request.accept([token])


@engines
def test_every_proposed_draft_is_legal(engine):
    request = request_of(engine, PAIRS)
    for token in tokens(*'{ "a":1, "b": 1}'):
        drafts = request.draft([], 7)
        rows = np.zeros((len(drafts) + 1, DOMAIN.mask_words), dtype=np.int32)
        request.session.lookahead(drafts, rows)
        assert all(rows[place][draft >> 5] >> (draft & 31) & 1 for place, draft in enumerate(drafts))
        assert request.accept([token])


def test_the_choice_ignores_the_sampled_drafts():
    grammar = seq(Literal(":"), Lexeme(chars("a1")))
    lengths = set()
    for sampled in itertools.product(tokens(":", "a", "1"), repeat=2):
        request = request_of("llguidance", grammar)
        drafts = request.draft(list(sampled), 2)
        assert drafts == [*tokens(":"), sampled[1]]
        lengths.add(request.drafted(drafts))
    assert lengths == {0b1}


@pytest.mark.parametrize(("scheduled", "marks"), [(3, 0b11), (2, 0b11), (1, 0b1), (0, 0)])
def test_only_scheduled_drafts_are_marked(scheduled, marks):
    request = request_of("llguidance", seq(Literal("1:"), Lexeme(chars("ab"))))
    drafts = request.draft(tokens("b", "b", "b"), 3)
    assert drafts == tokens("1", ":", "b")
    assert request.drafted(drafts[:scheduled]) == marks
    assert request.drafted(drafts) == 0, "a proposal counts for one step"


def test_other_drafts_are_not_marked():
    request = request_of("llguidance", Literal("1:"))
    request.draft([], 3)
    assert request.drafted(tokens("1", "1")) == 0


def test_nothing_is_proposed_where_the_grammar_leaves_a_choice():
    request = request_of("llguidance", alt(Literal("a1"), Literal("b1")))
    sampled = tokens("b", "1")
    assert request.draft(sampled, 3) is sampled
    assert request.drafted(sampled) == 0


def law_of(p, q, *, marked):
    """Law of the first two output tokens, over all sampled drafts; the second comes from p where verification stops."""
    law = np.zeros((DOMAIN.vocab_size, DOMAIN.vocab_size))
    for sampled in itertools.product(np.flatnonzero(q[0]), np.flatnonzero(q[1])):
        chance = q[0][sampled[0]] * q[1][sampled[1]]
        request = request_of("llguidance", seq(SPACE, Literal(":"), Lexeme(chars("a1"))))
        drafts = request.draft([int(token) for token in sampled], 2)
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
    "properties": {
        "customer_identifier": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_gift_wrapped": {"type": "boolean"},
        "city": {"enum": ["Lisbon", "London"]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"product_name": {"type": "string"}, "quantity": {"type": "integer"}},
                "required": ["product_name", "quantity"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["customer_identifier", "is_gift_wrapped", "city", "items"],
    "additionalProperties": False,
}
INSTANCE = {
    "customer_identifier": 12,
    "is_gift_wrapped": True,
    "city": "London",
    "items": [{"product_name": 'a "red" {cup}, large', "quantity": 3}, {"product_name": "tea", "quantity": 12}],
}


@pytest.fixture(scope="module")
def merges():
    """A vocabulary with real merges, and its tokenizer."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train(), eos_token="<|im_end|>")
    return TokenDomain.from_pretrained(tokenizer), tokenizer


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t"}], ids=str)
def test_most_of_what_a_writer_of_json_writes_is_foreseen(merges, layout):
    """A writer who splits his text as the tokenizer does, and keeps to one layout, needs far fewer steps."""
    domain, tokenizer = merges
    drafter = GrammarDrafter(domain, tokenizer)
    constraint = OutputConstraint.json_schema(json.dumps(SCHEMA))
    session = ConstraintCompiler(domain).compile(constraint).session()
    left = tokenizer.encode(json.dumps(INSTANCE, **layout), add_special_tokens=False)
    total, steps, wrong, written = len(left), 0, 0, Written(domain)
    while left:
        drafts = drafter.propose(session.scout(), written, 7)
        right = next((place for place, draft in enumerate(drafts) if [draft] != left[place : place + 1]), len(drafts))
        wrong += len(drafts) - right
        now, left = left[: right + 1], left[right + 1 :]
        assert all(map(session.accept, now))
        written.observe(now)
        steps += 1
    assert total / steps > 1.5
    assert wrong < total / 4


MTP = {"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}


@pytest.mark.engine
def test_greedy_output_is_the_same_in_fewer_steps(tiny_model):
    """With sampled drafts, and with n-gram copies between; the second half of the batch is sampled too."""
    texts, per_step = [], []
    for settings in (
        {"grammar_drafts": False},
        {"grammar_drafts": True},
        {"grammar_drafts": True, "ngram_copies": True},
    ):
        engine = EngineProcess(
            str(tiny_model),
            environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            speculative_config=MTP,
            disable_log_stats=False,
            additional_config={"infernix": settings},
        )
        request = {"structured": {"json": SCHEMA}, "options": {"temperature": 0.0, "max_tokens": 120}}
        try:
            outputs = engine.generate([{"prompt": f"river tree {number}", **request} for number in range(3)])
            steps = engine.counter("vllm:spec_decode_num_drafts")
            per_step.append(1 + engine.counter("vllm:spec_decode_num_accepted_tokens") / steps)
            request["options"] = {"temperature": 1.0, "seed": 3, "max_tokens": 200}
            batch = [{"prompt": f"river tree {number}", **request} for number in range(3)]
            sampled, again = ([completion["token_ids"] for (completion,) in engine.generate(batch)] for _ in range(2))
            assert sampled == again
        finally:
            engine.close()
        texts.append([completion["text"] for (completion,) in outputs])
    assert texts[0] == texts[1] == texts[2]
    assert min(per_step[1:]) > per_step[0]
