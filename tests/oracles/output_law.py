"""The exact distribution of a model's complete outputs under a constraint with few outputs, and tests against it.

It shares no code with the plugin: legal tokens come from the set of the language's strings, probabilities from an
unconstrained model, and everything is enumerated in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.oracles.byte_level import ByteLevel

Output = tuple[int, ...]
"""Token ids of a complete output; the last one is a stop token, or the last that the length limit leaves room for."""
Law = dict[Output, float]
"""Probabilities, which sum to 1. A rare prefix stands for all outputs that begin with it."""
LogProbabilities = Callable[[Sequence[Output], Sequence[Sequence[int]]], Sequence[Mapping[int, float]]]
"""Prefixes and the ids wanted after each -> natural logarithms of the unconstrained next-token probabilities."""

RARE = 1e-4
"""Outputs that begin with a prefix that is less probable than this are not told apart."""
MIN_EXPECTED = 5.0
"""Cells of a chi-square test that expect less than this are pooled."""


@dataclass(frozen=True)
class Setting:
    """How tokens are drawn: temperature, then the smallest set of tokens whose probability reaches ``top_p``."""

    temperature: float
    top_p: float = 1.0

    def probabilities(self, logits: Mapping[int, float]) -> dict[int, float]:
        """Return the distribution over the given (legal) tokens."""
        ids = sorted(logits, key=lambda token: -logits[token])
        scaled = np.array([logits[token] for token in ids]) / self.temperature
        weights = np.exp(scaled - scaled[0])
        weights /= weights.sum()
        before = np.cumsum(weights) - weights
        weights[before >= self.top_p] = 0
        return dict(zip(ids, (weights / weights.sum()).tolist(), strict=True))


@dataclass(frozen=True)
class FiniteLanguage:
    """Printable ASCII strings, written in at most ``max_tokens`` tokens, after which an output is cut."""

    strings: frozenset[str]
    max_tokens: int


class Vocabulary:
    """The ASCII tokens of a byte-level tokenizer, and the ids that end an output."""

    def __init__(self, model: Path) -> None:
        tokens = ByteLevel(model)
        self.pieces = {token: piece.decode() for token, piece in tokens.pieces.items() if piece.isascii()}
        self.stops = tokens.stops

    def text(self, tokens: Sequence[int]) -> str:
        """Return what the tokens write."""
        return "".join(self.pieces[token] for token in tokens)

    def written(self, output: Output) -> str:
        """Return the text of an output, without its stop token."""
        return self.text([token for token in output if token not in self.stops])

    def legal(self, prefix: Sequence[int], strings: Iterable[str]) -> list[int]:
        """Return the tokens that may follow ``prefix``."""
        written = self.text(prefix)
        rests = {string[len(written) :] for string in strings if string.startswith(written)}
        longest = max(map(len, rests))
        begins = {rest[:size] for rest in rests for size in range(1, longest + 1)}
        return [token for token, piece in self.pieces.items() if piece in begins] + (self.stops if "" in rests else [])


def output_laws(
    language: FiniteLanguage, vocabulary: Vocabulary, model: LogProbabilities, settings: Sequence[Setting]
) -> list[Law]:
    """Return the law of the outputs for each setting. ``model`` is asked once per length of the prefixes."""
    laws: list[Law] = [{} for _ in settings]
    prefixes: dict[Output, list[float]] = {(): [1.0] * len(settings)}
    while prefixes:
        legal = [vocabulary.legal(prefix, language.strings) for prefix in prefixes]
        longer: dict[Output, list[float]] = {}
        for (prefix, reached), logits in zip(prefixes.items(), model(list(prefixes), legal), strict=True):
            chances = [setting.probabilities(logits) for setting in settings]
            for token in logits:
                after = [before * chance[token] for before, chance in zip(reached, chances, strict=True)]
                cut = token in vocabulary.stops or len(prefix) + 1 == language.max_tokens
                if not cut and max(after) >= RARE:
                    longer[*prefix, token] = after
                    continue
                for law, probability in zip(laws, after, strict=True):
                    if probability:
                        law[*prefix, token] = probability
        prefixes = longer
    return laws


@dataclass(frozen=True)
class ChiSquare:
    """The outcome of a test."""

    statistic: float
    freedom: int

    @property
    def p(self) -> float:
        """The probability of a statistic as large as this if the hypothesis is true."""
        half = torch.tensor([self.freedom / 2, self.statistic / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(half[0], half[1]))


def against_law(outputs: Sequence[Output], law: Law) -> ChiSquare:
    """Test that the outputs are drawn from the law.

    Raises:
        AssertionError: an output has probability zero.
    """
    seen = Counter(_outcome(output, law) for output in outputs)
    rows = [(float(seen[output]), probability * len(outputs)) for output, probability in law.items()]
    cells = np.array(_pooled(rows, key=lambda row: row[1]))
    return ChiSquare(float(((cells[:, 0] - cells[:, 1]) ** 2 / cells[:, 1]).sum()), len(cells) - 1)


def against_each_other(first: Sequence[Output], second: Sequence[Output]) -> ChiSquare:
    """Test that two lists of outputs are drawn from the same law."""
    one, other = Counter(first), Counter(second)
    smaller = min(len(first), len(second)) / (len(first) + len(second))
    rows = [(float(one[output]), float(other[output])) for output in sorted(set(one) | set(other))]
    cells = np.array(_pooled(rows, key=lambda row: sum(row) * smaller))
    totals = cells.sum(axis=0)
    expected = cells.sum(axis=1, keepdims=True) * totals / totals.sum()
    return ChiSquare(float(((cells - expected) ** 2 / expected).sum()), len(cells) - 1)


def _outcome(output: Output, law: Law) -> Output:
    for size in range(1, len(output) + 1):
        if output[:size] in law:
            return output[:size]
    raise AssertionError(f"{output} has probability zero")


def _pooled(rows: list[tuple[float, float]], key: Callable[[tuple[float, float]], float]) -> list[tuple[float, float]]:
    """Add up the rows whose expectation, which is their key, is too small for the approximation."""
    large = [row for row in rows if key(row) >= MIN_EXPECTED]
    small = [row for row in rows if key(row) < MIN_EXPECTED]
    rest = (sum(row[0] for row in small), sum(row[1] for row in small))
    if key(rest) >= MIN_EXPECTED or not large:
        return [*large, rest]
    large.sort(key=key)
    return [(large[0][0] + rest[0], large[0][1] + rest[1]), *large[1:]]
