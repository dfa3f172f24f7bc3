"""What Flash-Next says, by transformers: whole texts, no caches, in the checkpoint's own bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TIE = 1 / 64
"""Logits of the quiet head are between 1 and 2 at most, where bfloat16 has steps of 1/128: these are two."""

MEAN_DIFFERENCE = 0.005
"""Bound on the mean difference of log probabilities, over an output's likeliest tokens."""


class Reference:
    """The model; ``changes`` of its configuration make another one of the same weights."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(folder)
        for name, value in changes.items():
            setattr(config, name, value)
        self.model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.bfloat16).eval()

    def logits(self, prompt: list[int], output: list[int]) -> Tensor:
        """Return the logits, float32 ``[len(output), V]``, from which each token of ``output`` was chosen."""
        with torch.no_grad():
            found: Tensor = self.model(torch.tensor([prompt + output])).logits[0]
        return found[len(prompt) - 1 : -1].float()

    def differences(self, prompt: list[int], completion: dict[str, Any]) -> tuple[float, float]:
        """Compare a greedy completion that has log probabilities.

        Returns:
            How far the chosen tokens' logits are below the best ones at most, and the mean difference of the log
            probabilities that were given.
        """
        output = completion["token_ids"]
        logits = self.logits(prompt, output)
        behind = logits.amax(1) - logits[torch.arange(len(output)), torch.tensor(output)]
        expected = logits.log_softmax(1)
        given = [
            (row, token, value) for row, found in enumerate(completion["logprobs"]) for token, value in found.items()
        ]
        error = sum(abs(value - float(expected[row, token])) for row, token, value in given) / len(given)
        return float(behind.max()), error

    def agrees(self, prompt: list[int], completion: dict[str, Any]) -> bool:
        """Tell whether every token is the best one or tied with it, and the log probabilities are the same."""
        behind, error = self.differences(prompt, completion)
        return behind <= TIE and error <= MEAN_DIFFERENCE


def quieten_head(folder: Path) -> None:
    """Divide the output head by 16, so that bfloat16 resolves the logits to where the figures above stand."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] /= 16
    save_file(tensors, path, metadata={"format": "pt"})
