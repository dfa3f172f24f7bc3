"""The worked examples of the specification, each under its name: grammar, masks, transactions and reading together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from infernix_plugin.errors import ConstraintDeadEnd, UnsupportedSchema
from infernix_plugin.framing.phases import CONTENT
from infernix_plugin.framing.reader import OutputForm, OutputReader
from infernix_plugin.framing.thinking_budget import ThinkingBudget
from infernix_plugin.framing.tools.contract import Tool, ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler, MaskState, Outcome, TokenDomain
from infernix_plugin.spec_decode.rejection import output_law
from infernix_plugin.structured_output.constrained import ConstrainedRequest
from tests.framing.calling import (
    COMPILER,
    CONTROL,
    DOMAIN,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    read,
    required,
    schema,
    session_of,
    text_of,
    tokens_of,
)
from tests.framing.test_tool_grammar import call

CLOSE = CONTROL["</think>"]


def running(constraint: OutputConstraint, compiler: ConstraintCompiler = COMPILER, **options) -> ConstrainedRequest:
    prepared = compiler.prepare(constraint, **({"framing": options.pop("framing")} if "framing" in options else {}))
    return ConstrainedRequest(prepared, kind=constraint.kind.value, **options)


def masks(request: ConstrainedRequest, drafts: list[int], words: int = DOMAIN.mask_words):
    """The states and the legal tokens of each row; the filler of a row that is not ready is left out."""
    rows = np.zeros((len(drafts) + 1, words), dtype=np.int32)
    states = request.fill(drafts, rows)
    legal = [set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()) for row in rows]
    return states, [row if state is MaskState.READY else set() for state, row in zip(states, legal, strict=True)]


def test_a_grammar_from_its_source_to_its_end():
    request = running(OutputConstraint.grammar('root ::= "status=" ("ok" | "error") "\\n"'))
    _, (first,) = masks(request, [])
    assert {ord("s")} == {token for token in first if len(DOMAIN.token_bytes(token)) == 1}
    assert all(b"status=".startswith(DOMAIN.token_bytes(token)) for token in first)
    ids = tokens_of("status=ok\n")
    assert request.accept(ids)
    assert masks(request, [])[1] == [{STOP}]
    assert request.accept([STOP])
    assert request.record()["terminated"]
    reader = OutputReader(OutputForm(CONTENT, enforced=True, content_is_free=False), DOMAIN)
    assert "".join(event.text for token in [*ids, STOP] for event in reader.feed([token])) == "status=ok\n"


def test_two_requests_with_one_prompt_share_resources_and_no_state():
    field = OutputConstraint.json_schema(schema({"size": {"type": "integer"}}, ["size"]))
    listed = OutputConstraint.choice(["small", "large"])
    first, second = running(field), running(listed)
    begun = masks(second, [])
    assert first.accept(tokens_of('{"size":1'))
    assert masks(second, []) == begun
    assert second.accept([*tokens_of("large"), STOP])
    again = COMPILER.prepare(field)
    assert again.outcome is Outcome.HIT
    fresh = ConstrainedRequest(again, kind="json_schema")
    assert ord("{") in masks(fresh, [])[1][0]
    assert fresh.accept([*tokens_of('{"size":2}'), STOP])
    assert first.accept([*tokens_of("0}"), STOP])


def test_a_greedy_draft_outside_the_grammar_is_rejected_and_corrected():
    request = running(OutputConstraint.choice(["ok", "error"]))
    drafts = list(b"no")
    states, rows = masks(request, drafts)
    assert states == [MaskState.READY, MaskState.UNREACHABLE, MaskState.UNREACHABLE]
    p = np.zeros(DOMAIN.vocab_size)
    p[list(rows[0])] = 1 / len(rows[0])
    assert p[drafts[0]] == 0
    q = np.eye(DOMAIN.vocab_size)[drafts]
    law = output_law([p, q[0], q[0]], list(q), drafts)
    assert set(law) == {(token,) for token in rows[0]}
    assert request.accept([ord("e")])
    assert masks(request, [])[1][0] >= {ord("r")}
    assert request.accept([*b"rror", STOP])


def test_a_sampled_draft_outside_the_grammar_leaves_half_and_half():
    domain = TokenDomain([b"a", b"b", b"x", b""], stop=[3])
    request = running(OutputConstraint.choice(["a", "b"]), ConstraintCompiler(domain))
    _, rows = masks(request, [], domain.mask_words)
    logits = np.log([0.4, 0.4, 0.2, 1e-9])
    p = np.where(np.isin(np.arange(4), list(rows[0])), np.exp(logits), 0.0)
    p /= p.sum()
    q = np.array([0.5, 0.0, 0.5, 0.0])
    after = np.array([0.0, 0.0, 0.0, 1.0])
    first = np.zeros(4)
    for draft in (0, 2):
        for output, probability in output_law([p, after], [q], [draft]).items():
            first[output[0]] += q[draft] * probability
    assert first == pytest.approx([0.5, 0.5, 0, 0])
    dropped = q[0] * np.eye(4)[0] + q[2] * p  # what dropping the draft would give
    assert dropped == pytest.approx([0.75, 0.25, 0, 0])


@pytest.mark.parametrize("budget", [None, 3], ids=["natural", "forced"])
def test_content_that_begins_with_a_space_behind_the_reasoning(budget):
    own = None if budget is None else ThinkingBudget(budget, CLOSE)
    request = running(OutputConstraint.grammar('root ::= " " [a-z]+'), framing=THINKING, budget=own)
    ids = [*b"why", CLOSE]
    states, rows = masks(request, ids)
    assert states == [MaskState.READY] * 5
    assert rows[3] == {CLOSE} if own else len(rows[3]) > 200
    assert request.accept(ids)
    states, (after,) = masks(request, [])
    assert {ord("\n")} <= after <= {token for token in after if b"\n\n ".startswith(DOMAIN.token_bytes(token))}
    rest = [*tokens_of("\n\n"), *b" ok", STOP]
    assert request.accept(rest)
    assert request.record()["terminated"]
    output = read(OutputForm(THINKING, enforced=True, content_is_free=False), ids + rest)
    assert (output.reasoning, output.content) == ("why", " ok")


def test_a_strict_tool_that_is_chosen_by_its_name():
    city, days = {"type": "string"}, {"type": "integer"}
    lookup = Tool("lookup", schema({"city": city, "days": days}, ["city", "days"]), strict=True)
    other = Tool("other", schema({}), strict=True)
    contract = required(lookup, other, allowed=frozenset(["lookup"]), parallel=False)
    value = "  New\nYork \n"
    ids = [*tokens_of(call("lookup", ("city", value), ("days", "3"))), STOP]
    assert is_allowed(session_of(contract), ids)
    (one,) = read(form_of(contract, enforced=True), ids).complete_calls
    assert (one.name, json.loads(one.arguments)) == ("lookup", {"city": value, "days": 3})
    for wrong in (
        call("other"),
        call("lookup", ("city", "x")),
        call("lookup", ("city", "x"), ("days", "3.5")),
        call("lookup", ("city", "x"), ("days", '"3"')),
    ):
        assert not is_allowed(session_of(contract), [*tokens_of(wrong), STOP])
    unwritable = Tool("lookup", schema({"city": {"const": "a\n</parameter>"}}, ["city"]), strict=True)
    with pytest.raises(UnsupportedSchema, match="cannot be written") as refused:
        session_of(required(unwritable))
    assert refused.value.location == "tools[0].parameters#/properties/city"


def test_a_continued_answer_that_is_paused():
    constraint = OutputConstraint.json_schema(schema({"name": {"type": "string"}}, ["name"]))
    prefix = b'{"name":'
    prepared = COMPILER.prepare(constraint)
    request = ConstrainedRequest(prepared, kind="json_schema", session=prepared.compiled.session(prefix))
    before = tokens_of('"Shang')
    assert request.accept(before)
    kept = masks(request, [])
    # Paused and resumed: the session waits with its request, and nothing is fed to it a second time.
    assert masks(request, []) == kept
    after = [*tokens_of('hai"}'), STOP]
    assert request.accept(after)
    assert request.record()["complete"]
    suffix = text_of([*before, *after[:-1]])
    assert suffix == '"Shanghai"}'
    assert json.loads(prefix.decode() + suffix) == {"name": "Shanghai"}


def test_a_dead_end_that_is_not_reached_one_that_is_and_a_cancelled_row():
    domain = TokenDomain([b"a", b"b", b"c", b""], stop=[3])  # nothing writes x
    compiler = ConstraintCompiler(domain)
    constraint = OutputConstraint.regex("(abx|ac|b)")
    spared, reached, cancelled = (running(constraint, compiler) for _ in range(3))
    for request in (spared, reached, cancelled):
        states, _ = masks(request, [0, 1], domain.mask_words)
        assert states == [MaskState.READY, MaskState.READY, MaskState.DEAD_END]
    assert spared.accept([0, 2])  # the target rejected the draft, so its correction is committed
    assert not reached.accept([0, 1, 2])
    assert isinstance(reached.failure, ConstraintDeadEnd)
    assert (cancelled.failure, cancelled.record()["complete"]) == (None, False)
    # The rounds that failed or were cancelled committed nothing.
    for request in (reached, cancelled):
        assert request.session.accept(1)
    assert spared.accept([3])
    assert spared.record()["terminated"]


def test_an_empty_output_is_no_finished_schema():
    request = running(OutputConstraint.json_schema("{}"))
    assert STOP not in masks(request, [])[1][0]
    assert (request.record()["complete"], request.record()["terminated"]) == (False, False)
    empty = running(OutputConstraint.regex("a?"))
    assert STOP in masks(empty, [])[1][0]
    assert empty.accept([STOP])
    assert empty.record()["terminated"]


def test_a_cut_inside_a_character_is_not_in_the_language():
    request = running(OutputConstraint.choice(["né"]))
    ids = [*"né".encode()][:-1]
    assert request.accept(ids)
    assert (request.record()["complete"], request.record()["terminated"]) == (False, False)
    assert read(OutputForm(CONTENT, enforced=True, content_is_free=False), ids).content == "n\ufffd"
    tool = Tool("f", schema({"s": {"type": "string"}}, ["s"]), strict=True)
    cut = [*tokens_of("<tool_call>\n<function=f>\n<parameter=s>\n"), *"né".encode()[:-1]]
    output = read(form_of(ToolContract((tool,)), enforced=True), cut)
    assert output.complete_calls == []


def test_complete_content_at_the_length_limit_is_complete_and_not_ended():
    request = running(OutputConstraint.json_schema('{"type": "boolean"}'))
    assert request.accept(tokens_of("true"))
    assert (request.record()["complete"], request.record()["terminated"]) == (True, False)
