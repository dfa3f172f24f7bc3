"""Transformers' opinion of what an engine said: float32, whole texts, given the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.parity.checkpoints import Bounds, Checkpoint
from tests.parity.expert_ties import opinions

BEST = 0.95
"""Least share of tokens that are the best one."""
MEAN = 0.005
"""Bound on the mean difference of the tokens' log-probabilities."""


@dataclass(frozen=True)
class Judged:
    """One output of n tokens.

    ``behind``: float32[n], how far each token's logit is below the best. ``off``: float32[n], the error of its
    log-probability. ``tied``: bool[n], whether it is the best or bfloat16 cannot tell it from the best: see ``Judge``.
    """

    tokens: Sequence[int]
    behind: torch.Tensor
    off: torch.Tensor
    tied: torch.Tensor


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
        return sum(int(((output.behind > 0) & output.tied).sum()) for output in self.outputs)

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
        untied = max(float((output.behind * ~output.tied).max()) for output in self.outputs)
        return [
            text
            for wrong, text in (
                (untied > 0, f"a token is {untied:.3f} behind the best"),
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
    """The model in transformers; ``changes`` of its configuration make another one of the same weights.

    float32 decides. A token that is not its best one is tied if its logit is within the bound, or if it is for the same
    model in the checkpoint's own bfloat16, where an expert that ties may be another one, or in float32 if one that ties
    at this token is exchanged.
    """

    def __init__(self, checkpoint: Checkpoint, prompts: Sequence[list[int]], **changes: Any) -> None:
        self._checkpoint, self._prompts, self._changes = checkpoint, prompts, changes
        self._models: dict[torch.dtype, Any] = {}
        self._known: dict[tuple[torch.dtype, tuple[int, ...]], tuple[torch.Tensor, torch.Tensor]] = {}

    def judge(self, outcome: Mapping[str, Any]) -> Verdict:
        """Judge a round: the ``tokens`` and ``logprobs`` of the answer to each prompt."""
        outputs = []
        tie = self._checkpoint.bounds.tie
        for prompt, tokens, logprobs in zip(self._prompts, outcome["tokens"], outcome["logprobs"], strict=True):
            behind, expected = self._opinion(torch.float32, prompt, tokens)
            tied = behind < tie
            if not tied.all():
                tied = tied | (self._opinion(torch.bfloat16, prompt, tokens)[0] < tie)
            for index in (~tied).nonzero().flatten().tolist():
                tied[index] = self._best_by_an_exchange(prompt, tokens, index)
            outputs.append(Judged(tokens, behind, (expected - torch.tensor(logprobs)).abs(), tied))
        return Verdict(outputs, self._checkpoint.bounds)

    def _opinion(self, dtype: torch.dtype, prompt: list[int], tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how far each token is behind the best one, and its log-probability."""
        key = (*prompt, *tokens)
        if (dtype, key) not in self._known:
            with torch.no_grad():
                logits = self._model(dtype)(torch.tensor([key])).logits[0, len(prompt) - 1 : -1].float()
            chosen = torch.tensor(tokens)[:, None]
            behind = logits.amax(1) - logits.gather(1, chosen)[:, 0]
            self._known[dtype, key] = behind, logits.log_softmax(1).gather(1, chosen)[:, 0]
        return self._known[dtype, key]

    def _best_by_an_exchange(self, prompt: list[int], tokens: list[int], index: int) -> bool:
        position = len(prompt) + index - 1
        with torch.no_grad():
            others = opinions(self._model(torch.float32), [*prompt, *tokens], position)
            behind = (logits[position].max() - logits[position, tokens[index]] for logits in others)
            return any(float(gap) < self._checkpoint.bounds.tie for gap in behind)

    def _model(self, dtype: torch.dtype) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        if dtype not in self._models:
            folder = self._checkpoint.reference
            config = AutoConfig.from_pretrained(folder)
            for name, value in self._changes.items():
                setattr(config, name, value)
            self._models[dtype] = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=dtype).eval()
        return self._models[dtype]


def compare(found: Verdict, plain: Verdict) -> Comparison:
    """Compare two rounds of the same prompts token for token."""
    equal = parted = wrong = 0
    for one, other in zip(found.outputs, plain.outputs, strict=True):
        pairs = zip(one.tokens, other.tokens, strict=True)
        where = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
        equal += len(one.tokens) if where is None else where
        if where is not None:
            tied = bool(one.tied[where] and other.tied[where])
            parted, wrong = parted + tied, wrong + (not tied)
    return Comparison(equal, parted, wrong)
