"""Which token follows which: the statistics that make a tiny random model write words instead of noise.

A random network has flat or arbitrary logits. Here the output head is a closed-form associative memory instead: with
token ``x`` embedded as a random vector ``e(x)``, the row of token ``y`` is ``sum_x A(x, y) e(x)``, so that a hidden
state near ``e(x)`` scores ``y`` with about ``A(x, y)``, the (sharpened) logarithm of how much more often than by chance
``y`` follows ``x``. Nothing is trained, and every sum runs in a fixed order, so the result is the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SMOOTHING = 0.05
"""Added to the count of every token, so that none has frequency zero."""

DISCOUNT = 0.5
"""Taken off the count of every pair: what happened once was partly luck."""

SHARPNESS = 1.8
"""Exponent on the ratio of a pair's probability to chance. Makes up for the weight that all unseen pairs keep."""

MAX_OVERLAP = 1.5
"""Bound, in nats, on the standard deviation of what a row recalls for contexts it does not belong to. Rows of frequent
tokens hold so many contexts that they are scaled down to it; else they would win everywhere by accident."""


@dataclass(frozen=True)
class Associations:
    """Statistics over ``size`` tokens.

    Attributes:
        log_frequency: float64[size], logarithm of the smoothed frequency of each token.
        previous, following: int64[n], pairs that occur more often than by chance, sorted.
        strength: float64[n], logarithm of how much more often, in nats, positive.
    """

    log_frequency: NDArray[np.float64]
    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    strength: NDArray[np.float64]


def count(sequences: Iterable[Sequence[int]], size: int) -> Associations:
    """Count neighbours in ``sequences``; the first id of each sequence is context only, it is never a follower."""
    pairs: Counter[tuple[int, int]] = Counter()
    for ids in sequences:
        pairs.update(pairwise(ids))
    ordered = sorted(pairs)
    previous, following = (np.array(column, dtype=np.int64) for column in zip(*ordered, strict=True))
    times = np.array([pairs[pair] for pair in ordered], dtype=np.float64)
    contexts = np.bincount(previous, weights=times, minlength=size)
    frequency = np.bincount(following, weights=times, minlength=size) + SMOOTHING
    frequency /= frequency.sum()
    strength = np.log((times - DISCOUNT) / contexts[previous] / frequency[following])
    kept = (strength > 0) & (previous != following)  # repetition is left out: greedy decoding would never leave it
    return Associations(np.log(frequency), previous[kept], following[kept], strength[kept])


def output_head(table: Associations, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the head, float32[size, hidden], for hidden states that point along rows of ``embedding``.

    ``embedding``'s first column is the same for every token and carries the frequencies; the other columns are random.
    Dividing by their squared length makes a hidden state equal to ``embedding[x]`` recall ``A(x, .)`` itself, up to the
    overlap of random vectors, whose deviation for row ``y`` is the length of ``A(., y)`` over the root of the width.
    """
    size, width = embedding.shape
    varied = embedding[:, 1:].astype(np.float64)
    strength = SHARPNESS * table.strength
    overlap = np.sqrt(np.bincount(table.following, weights=np.square(strength), minlength=size) / width)
    head = np.zeros(embedding.shape, dtype=np.float64)
    np.add.at(head[:, 1:], table.following, strength[:, None] * varied[table.previous])
    head[:, 1:] *= (
        np.minimum(1.0, MAX_OVERLAP / np.maximum(overlap, MAX_OVERLAP))[:, None] / np.square(varied).sum(axis=1).mean()
    )
    head[:, 0] = table.log_frequency / embedding[0, 0]
    return head.astype(np.float32)
