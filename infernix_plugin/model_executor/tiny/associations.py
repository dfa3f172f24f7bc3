"""Which token follows which: the statistics that make a tiny random model write words instead of noise.

A random network has flat or arbitrary logits. Here the output head is a closed-form associative memory instead: with
token ``x`` embedded as a random vector ``e(x)``, the row of token ``y`` is ``sum_x A(x, y) e(x)``, so that a hidden
state near ``e(x)`` scores ``y`` with about ``A(x, y)``, the logarithm of how much more often than by chance ``y``
follows ``x``. Nothing is trained, and every sum runs in a fixed order, so the result is the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Associations:
    """Statistics over ``size`` tokens.

    Attributes:
        log_frequency: float64[size], logarithm of the smoothed frequency of each token.
        previous, following: int64[n], pairs that occur more often than by chance, sorted.
        strength: float64[n], their pointwise mutual information in nats, positive.
    """

    log_frequency: NDArray[np.float64]
    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    strength: NDArray[np.float64]


def count(sequences: Iterable[Sequence[int]], size: int, *, smoothing: float = 0.05) -> Associations:
    """Count neighbours in ``sequences``; the first id of each sequence is context only, it is never a follower."""
    pairs: Counter[tuple[int, int]] = Counter()
    for ids in sequences:
        pairs.update(zip(ids, ids[1:], strict=False))
    ordered = sorted(pairs)
    previous, following = (np.array(column, dtype=np.int64) for column in zip(*ordered, strict=True))
    times = np.array([pairs[pair] for pair in ordered], dtype=np.float64)
    contexts = np.bincount(previous, weights=times, minlength=size)
    frequency = np.bincount(following, weights=times, minlength=size) + smoothing
    frequency /= frequency.sum()
    strength = np.log(times / contexts[previous] / frequency[following])
    kept = strength > 0
    return Associations(np.log(frequency), previous[kept], following[kept], strength[kept])


def output_head(table: Associations, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the head, float32[size, hidden], for hidden states that point along rows of ``embedding``.

    ``embedding``'s first column is the same for every token; it carries the frequencies. Dividing by the squared length
    makes a hidden state equal to ``embedding[x]`` recall ``A(x, .)`` itself, up to the overlap of random vectors.
    """
    constant = float(embedding[0, 0])
    varied = embedding[:, 1:].astype(np.float64)
    head = np.zeros(embedding.shape, dtype=np.float64)
    np.add.at(head[:, 1:], table.following, table.strength[:, None] * varied[table.previous])
    head[:, 1:] /= np.square(varied).sum(axis=1).mean()
    head[:, 0] = table.log_frequency / constant
    return head.astype(np.float32)
