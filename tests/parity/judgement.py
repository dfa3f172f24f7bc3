"""Transformers' opinion of what an engine said: float32, whole texts, given the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.parity.checkpoints import Bounds, Checkpoint

BEST = 0.95
"""Least share of tokens that are the best one."""
MEAN = 0.005
"""Bound on the mean difference of the tokens' log-probabilities."""


@dataclass(frozen=True)
class Judged:
    """One output. ``behind``: how far each token's logit is below the best; ``off``: the error of its log-probability.

    Both float32[n].
    """

    tokens: Sequence[int]
    behind: torch.Tensor
    off: torch.Tensor


@dataclass(frozen=True)
class Verdict:
    """All outputs of a round."""

    outputs: Sequence[Judged]
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def tokens(self) -> int:
        """How many tokens were judged."""
        return sum(len(output.tokens) for output in self.outputs)

    @property
    def equal(self) -> int:
        """How many of them are transformers' own choice."""
        return sum(int((output.behind == 0).sum()) for output in self.outputs)

    @property
    def ties(self) -> int:
        """How many are not, and are tied with it."""
        return sum(int(((output.behind > 0) & (output.behind < self.bounds.tie)).sum()) for output in self.outputs)

    @property
    def worst_gap(self) -> float:
        """How far a chosen token is behind the best one at most."""
        return max(float(output.behind.max()) for output in self.outputs)

    @property
    def mean_difference(self) -> float:
        """Mean absolute difference of the log-probabilities of the chosen tokens."""
        return float(torch.cat([output.off for output in self.outputs]).mean())

    @property
    def complaints(self) -> list[str]:
        """What exceeds the bounds; nothing if the engine says what transformers says."""
        largest = max(float(output.off.max()) for output in self.outputs)
        return [
            text
            for wrong, text in (
                (self.worst_gap >= self.bounds.tie, f"a token is {self.worst_gap:.3f} behind the best"),
                (self.equal < BEST * self.tokens, f"{self.equal} of {self.tokens} tokens are the best"),
                (self.mean_difference > MEAN, f"log-probabilities differ by {self.mean_difference:.4f} in the mean"),
                (largest >= self.bounds.far, f"a log-probability differs by {largest:.3f}"),
            )
            if wrong
        ]


@dataclass(frozen=True)
class Comparison:
    """One round beside another, request by request, up to where the texts part.

    ``equal``: tokens up to there. ``parted``: requests that part at a tie. ``wrong``: requests that part elsewhere.
    """

    equal: int
    parted: int
    wrong: int


class Judge:
    """The model in transformers; ``changes`` of its configuration make another one of the same weights."""

    def __init__(self, checkpoint: Checkpoint, prompts: Sequence[list[int]], **changes: Any) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(checkpoint.reference)
        for name, value in changes.items():
            setattr(config, name, value)
        self._model = AutoModelForCausalLM.from_pretrained(
            checkpoint.reference, config=config, dtype=torch.float32
        ).eval()
        self._prompts, self._bounds = prompts, checkpoint.bounds
        self._known: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def judge(self, outcome: Mapping[str, Any]) -> Verdict:
        """Judge a round: the ``tokens`` and ``logprobs`` of the answer to each prompt."""
        outputs = []
        for prompt, tokens, logprobs in zip(self._prompts, outcome["tokens"], outcome["logprobs"], strict=True):
            behind, expected = self._opinion(prompt, tokens)
            outputs.append(Judged(tokens, behind, (expected - torch.tensor(logprobs)).abs()))
        return Verdict(outputs, self._bounds)

    def _opinion(self, prompt: list[int], tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        key = (*prompt, *tokens)
        if key not in self._known:
            with torch.no_grad():
                logits = self._model(torch.tensor([key])).logits[0, len(prompt) - 1 : -1]
            chosen = torch.tensor(tokens)[:, None]
            behind = logits.amax(1) - logits.gather(1, chosen)[:, 0]
            self._known[key] = behind, logits.log_softmax(1).gather(1, chosen)[:, 0]
        return self._known[key]


def compare(found: Verdict, plain: Verdict) -> Comparison:
    """Compare two rounds of the same prompts token for token."""
    equal = parted = wrong = 0
    for one, other in zip(found.outputs, plain.outputs, strict=True):
        pairs = zip(one.tokens, other.tokens, strict=True)
        where = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
        equal += len(one.tokens) if where is None else where
        if where is not None:
            tied = max(float(one.behind[where]), float(other.behind[where])) < found.bounds.tie
            parted, wrong = parted + tied, wrong + (not tied)
    return Comparison(equal, parted, wrong)
