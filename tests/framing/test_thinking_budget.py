"""Thinking budgets: which token has to come, and that a forced close is an ordinary one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from infernix_plugin.framing.phases import CONTENT, ControlIds, Framing
from infernix_plugin.framing.thinking_budget import ThinkingBudget, budget_of
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import MaskState
from infernix_plugin.structured_output.constrained import ConstrainedRequest
from tests.framing.calling import COMPILER, CONTROL, DOMAIN, STOP, THINKING, required, tokens_of
from tests.framing.test_tool_grammar import PING, call

CLOSE, X, Y, Z = 100, 1, 2, 3


@pytest.mark.parametrize(
    ("tokens", "closing", "drafts", "forced"),
    [
        (0, [], [CLOSE, X], [CLOSE, None, None]),
        (2, [], [X, X, CLOSE], [None, None, CLOSE, None]),
        (3, [], [X, CLOSE, X, X], [None, None, None, None, None]),
        (1, [Y, Z, CLOSE, X], [X, Y, Z, CLOSE, X], [None, Y, Z, CLOSE, None, None]),
        (1, [Y], [X, Y, CLOSE], [None, Y, CLOSE, None]),
        (-4, [CLOSE], [CLOSE], [CLOSE, None]),
        (1, [], [X, X, X], [None, CLOSE, CLOSE, CLOSE]),
    ],
    ids=["none", "spent", "natural", "text", "text without the token", "overspent", "against the mask"],
)
def test_what_has_to_come(tokens, closing, drafts, forced):
    budget = ThinkingBudget(tokens, CLOSE, closing)
    assert budget.forced(drafts) == budget.forced(drafts) == forced
    for position, token in enumerate(drafts):
        assert budget.forced([]) == [forced[position]]
        budget.observe([token])


def test_a_budget_is_of_an_open_reasoning_and_counts_what_the_prompt_holds_of_it():
    known, open_, framing = ControlIds(101, CLOSE, 102), 101, Framing(thinking=True, close_id=CLOSE)
    assert budget_of(None, [open_], framing, known) is None
    assert budget_of(3, [X], CONTENT, known) is None
    for written in range(5):
        budget = budget_of(3, [X, open_, X, open_, *[X] * written], framing, known)
        assert budget.forced([X, X, X]).index(CLOSE) == max(3 - written, 0)


def outputs(tokens: int | None, contract, content, rng: random.Random, closing=()) -> list[int]:
    """A random output through the masks of windows of up to three random drafts, as verification would commit it."""
    prepared = COMPILER.prepare_tools(contract, content, framing=THINKING)
    budget = budget_of(tokens, [CONTROL["<think>"], ord("\n")], THINKING, DOMAIN, closing)
    request = ConstrainedRequest(prepared, kind="tools", budget=budget)
    ids: list[int] = []
    while not request.session.terminated and len(ids) < 600:
        drafts = [rng.choice([*b"ab\n", CONTROL["</think>"]]) for _ in range(rng.randint(0, 3))]
        rows = np.zeros((len(drafts) + 1, DOMAIN.mask_words), dtype=np.int32)
        states = request.fill(drafts, rows)
        window: list[int] = []
        for position, row in enumerate(rows):
            assert states[position] is MaskState.READY
            legal = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
            draft = drafts[position] if position < len(drafts) else None
            ending = [token for token in (STOP, *tokens_of("\n</function>\n")) if token in legal]
            window.append(draft if draft in legal else rng.choice(ending or legal))
            if window[-1] != draft:
                break
        assert request.accept(window), request.failure
        ids += window
    return ids


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("budget", [0, 1, 2, 5])
def test_reasoning_ends_within_its_budget_under_any_drafts(seed, budget):
    close = CONTROL["</think>"]
    answer = OutputConstraint.json_schema('{"enum": ["a", "b"]}')
    for contract, content in ((required(PING, parallel=False), None), (required(PING).identity(), None)):
        ids = outputs(budget, contract, content, random.Random(seed))
        assert ids.index(close) <= max(budget - 1, 0)  # the prompt's line break counts
        assert ids[ids.index(close) + 1 :][-1] == STOP
    prepared = COMPILER.prepare(answer, framing=THINKING)
    request = ConstrainedRequest(prepared, kind="json", budget=ThinkingBudget(budget, close))
    thought = tokens_of("abcdef")[:budget]
    assert request.accept([*thought, close, *tokens_of('\n\n"a"'), STOP])
    assert request.record()["complete"]


def test_a_forced_close_is_a_natural_one():
    close, ids = CONTROL["</think>"], tokens_of("hm")
    rest = [*tokens_of("\n\n" + call("ping")), STOP]
    rows = []
    for budget in (ThinkingBudget(2, close), ThinkingBudget(9, close), None):
        prepared = COMPILER.prepare_tools(required(PING), None, framing=THINKING)
        request = ConstrainedRequest(prepared, kind="tools", budget=budget)
        mask = np.zeros((1, DOMAIN.mask_words), dtype=np.int32)
        assert request.accept([*ids, close])
        request.fill([], mask)
        rows.append(mask.tobytes())
        assert request.accept(rest)
        assert (request.record()["complete"], request.record()["terminated"]) == (True, True)
    assert len(set(rows)) == 1


def test_the_text_that_closes_passes_through_the_session():
    closing = [*b"So", CONTROL["</think>"]]
    ids = outputs(3, required(PING, parallel=False), None, random.Random(3), closing)
    text = ids[: ids.index(closing[-1]) + 1]
    if len(text) > 3:
        assert text[-3:] == closing
    assert len(text) <= 2 + len(closing)
