"""Windows of the last inputs, against whole texts, over random steps of several requests with drafts and rejections."""

import random

import pytest
import torch

from infernix_plugin.model_executor.models.flash_next.rolling_window import RollingWindow

BACK, DRAFTS, SLOTS = 5, 3, 7
INITIAL = torch.tensor([-1])


@pytest.mark.parametrize("seed", range(20))
def test_every_step_sees_the_inputs_before_it(seed) -> None:
    rng = random.Random(seed)
    buffers = torch.full((SLOTS, BACK + DRAFTS, 1), 77)  # whatever was there before
    texts = {slot: [] for slot in rng.sample(range(SLOTS), 4)}
    accepted = dict.fromkeys(texts, 0)  # of the previous step, 0: it was not speculative
    for _ in range(30):
        slots = rng.sample(list(texts), rng.randrange(1, 5))
        steps = []
        for slot in slots:
            speculative = bool(texts[slot]) and (accepted[slot] > 0 or rng.random() < 0.6)
            count = rng.randrange(1, DRAFTS + 2) if speculative else rng.randrange(1, 9)
            steps.append((slot, speculative, [rng.randrange(10_000) for _ in range(count)]))
        lengths = [len(inputs) for _, _, inputs in steps]
        window = RollingWindow.of(
            torch.tensor([0, *lengths]).cumsum(0),
            torch.tensor(slots),
            torch.tensor([max(accepted[slot], 1) - 1 if speculative else -1 for slot, speculative, _ in steps]),
            torch.tensor([not texts[slot] for slot in slots]),
            back=BACK,
        )
        values = torch.tensor([value for _, _, inputs in steps for value in inputs])[:, None]
        lined_up = window.line_up(buffers, INITIAL, values)
        window.store(buffers, lined_up)
        token = 0
        for slot, speculative, inputs in steps:
            text = [-1] * BACK + texts[slot]
            for value in inputs:
                text.append(value)
                assert lined_up[window.recent[token], 0].tolist() == text[-BACK - 1 :]
                token += 1
            accepted[slot] = rng.randrange(1, len(inputs) + 1) if speculative else 0
            texts[slot] += inputs[: accepted[slot]] if speculative else inputs
