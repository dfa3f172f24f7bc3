"""Recurrent states at block borders: every state that is read, now or from the cache, is the one after the right token.

The states here are labels. A recurrence after ``n`` tokens is filled with ``n``; a window of inputs holds the numbers
of the last tokens. Requests draft, accept and reject at random, and the runner's decisions are made as vLLM makes them.
"""

from __future__ import annotations

import random

import pytest
import torch

from infernix_plugin.seams.cpu_faults.align_state_copy import State, Step, save_at_borders

BLOCK, DRAFTS, WIDTH = 8, 3, 3
COLUMNS = 40
NOISE = -7.0


class Request:
    """Writes its states as a model does, reads them back and compares. ``window``: its dimension, 0 or -1."""

    def __init__(self, row: int, states: list[State], window: int) -> None:
        self.row, self.states, self.window = row, states, window
        self.table = states[0].table[row]
        self.computed, self.accepted, self.column = 0, 1, -1

    def write(self, scheduled: int) -> None:
        """Leave, in the running column, the states after each token of a step, as the layers would."""
        inputs, recurrence = self.states
        for b in range(min(scheduled, DRAFTS + 1)):
            recurrence.blocks[self.table[self.column + b]] = self.computed + b + 1
        buffer = inputs.blocks[self.table[self.column]].transpose(0, self.window)
        for b in range(min(scheduled, DRAFTS + 1)):
            last = torch.arange(self.computed + b - WIDTH + 2, self.computed + b + 2)
            buffer[b : b + WIDTH] = last[:, None].expand(-1, 2)

    def write_prefill(self, scheduled: int) -> None:
        """A prompt's chunk leaves only the states after its last token, at the first position."""
        inputs, recurrence = self.states
        end = self.computed + scheduled
        recurrence.blocks[self.table[self.column]] = end
        buffer = inputs.blocks[self.table[self.column]].transpose(0, self.window)
        buffer[:WIDTH] = torch.arange(end - WIDTH + 1, end + 1)[:, None].expand(-1, 2)

    def check(self, column: int, bias: int, after: int) -> None:
        inputs, recurrence = self.states
        assert (recurrence.blocks[self.table[column + bias]] == after).all(), (column, bias, after)
        buffer = inputs.blocks[self.table[column]].transpose(0, self.window)[bias : bias + WIDTH]
        assert (buffer == torch.arange(after - WIDTH + 1, after + 1)[:, None]).all(), (column, bias, after)

    def enter(self, scheduled: int) -> None:
        """Before a step: carry the state into the block in which the step ends, and check what the layers will read."""
        column = (self.computed + scheduled - 1) // BLOCK
        if self.column >= 0 and column != self.column:
            for state in self.states:
                state.copy(self.row, self.column, column, self.accepted - 1)
            self.accepted = 1
        if self.computed:
            self.check(column, self.accepted - 1, self.computed)
        self.column = column


def play(seed: int, window: int) -> int:
    """Let three requests go on for 60 steps; return how many borders were saved and checked."""
    rng = random.Random(seed)
    table = torch.arange(1, 1 + 3 * COLUMNS, dtype=torch.int32).view(3, COLUMNS)
    blocks = 1 + table.numel()
    shape = (blocks, WIDTH + DRAFTS, 2) if window == 0 else (blocks, 2, WIDTH + DRAFTS)
    states = [State(torch.full(shape, NOISE), table, window), State(torch.full((blocks, 5), NOISE), table, None)]
    requests = [Request(row, states, window) for row in range(3)]
    saved = 0
    for step in range(60):
        drafts, scheduled, accepted = [], [], []
        for request in requests:
            prefill = step == 0
            drafts.append(0 if prefill else rng.randrange(DRAFTS + 1))
            scheduled.append(rng.randrange(1, BLOCK + 1) if prefill else 1 + drafts[-1])
            accepted.append(1 + rng.randrange(drafts[-1] + 1))
            request.enter(scheduled[-1])
            (request.write_prefill if prefill else request.write)(scheduled[-1])
        report = Step(
            column=torch.tensor([request.column for request in requests]),
            computed=torch.tensor([request.computed for request in requests]),
            scheduled=torch.tensor(scheduled),
            drafts=torch.tensor(drafts),
            accepted=torch.tensor(accepted),
        )
        reads_from = save_at_borders(states, report, BLOCK)
        for index, request in enumerate(requests):
            before = request.computed
            request.computed += scheduled[index] - drafts[index] + accepted[index] - 1
            request.accepted = int(reads_from[index])
            border = request.computed // BLOCK * BLOCK
            if border > before:
                request.check(border // BLOCK - 1, 0, border)
                saved += 1
    return saved


@pytest.mark.parametrize("window", [0, -1])
@pytest.mark.parametrize("seed", range(5))
def test_every_state_is_the_one_after_the_right_token(seed: int, window: int) -> None:
    assert play(seed, window) > 30


def test_the_game_notices_a_state_that_is_not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "copy", lambda *args: None)
    with pytest.raises(AssertionError):
        play(0, 0)


def test_the_game_notices_a_state_that_is_not_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = State.copy
    monkeypatch.setattr(State, "copy", lambda self, row, source, target, bias: copy(self, row, source, target, 0))
    with pytest.raises(AssertionError):
        play(0, 0)
