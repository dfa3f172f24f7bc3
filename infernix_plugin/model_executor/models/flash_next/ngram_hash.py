"""Which rows of the n-gram table belong to a token: hashes of the token and the few before it.

For every order ``o`` from 2 to ``n`` and every head, the row of token ``x[t]`` is

    (x[t] * m[0] xor x[t-1] * m[1] xor ... xor x[t-o+1] * m[o-1])  mod  prime(o, head)  +  offset(o, head)

in 64-bit integers that wrap around. An end-of-text token cuts: it and everything before it count as end-of-text. The
multipliers come from a seed, each head has a prime of its own, and the rows of the heads lie behind each other in one
table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, islice
from math import isqrt
from typing import Any

import numpy as np

_WORD = (1 << 64) - 1
_LARGEST = (1 << 63) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""The increment of SplitMix64 (Steele, Lea, Flood 2014), whose output function ``_mixed`` is."""

_LARGEST_BASE = 1 << 40

_LAYER_STRIDE = 10_007
"""Distance between the seeds of two n-gram layers."""


@dataclass(frozen=True)
class NgramHash:
    """The hash of one n-gram layer.

    Attributes:
        multipliers: one odd number per position of the n-gram, ``n`` in all.
        primes: rows of every head, order by order: ``(n - 1) * heads``.
        cut: the end-of-text token.
    """

    multipliers: tuple[int, ...]
    primes: tuple[int, ...]
    cut: int

    @classmethod
    def of(cls, config: Any, index: int) -> NgramHash:
        """Read the hash of the ``index``-th n-gram layer (from zero) off a ``Qwen4ExpTextConfig``."""
        half = max(1, _LARGEST // max(config.vocab_size, 1) // 2)
        seed = config.seed + _LAYER_STRIDE * index
        multipliers = (2 * (_mixed(seed + _GOLDEN * (i + 1)) % half) + 1 for i in range(config.ngram_size))
        primes = head_primes((config.ngram_size - 1) * config.heads_per_ngram, config.ngram_vocab_size_base, index)
        eos = config.eos_token_id
        return cls(tuple(multipliers), primes, eos[0] if isinstance(eos, list) else eos)

    @property
    def context(self) -> int:
        """Return how many earlier tokens the hash of a token reads."""
        return len(self.multipliers) - 1

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return the first row of every head."""
        return tuple(accumulate(self.primes[:-1], initial=0))

    def rows(self, recent: Any) -> Any:
        """Return the rows of tokens, int64 ``[tokens, (n - 1) * heads]``.

        Args:
            recent: int64 ``[tokens, n]``, each token behind the ``n - 1`` before it, oldest first.
        """
        import torch

        tokens = recent.numpy()
        mixed = tokens[:, -1] * self.multipliers[0]
        open_ = np.ones(len(tokens), dtype=bool)
        found = np.empty((len(tokens), self.context, len(self.primes) // self.context), dtype=np.int64)
        for back, multiplier in enumerate(self.multipliers[1:], 1):
            earlier = tokens[:, -1 - back]
            open_ &= earlier != self.cut
            mixed = mixed ^ np.where(open_, earlier, self.cut) * multiplier
            np.remainder(mixed[:, None], self._moduli[back - 1], out=found[:, back - 1])
        found += self._offsets
        return torch.from_numpy(found.reshape(len(tokens), len(self.primes)))

    @cached_property
    def _moduli(self) -> Any:
        return np.array(self.primes).reshape(self.context, -1)

    @cached_property
    def _offsets(self) -> Any:
        return np.array(self.offsets).reshape(self.context, -1)


def head_primes(heads: int, base: int, index: int) -> tuple[int, ...]:
    """Return the primes of ``heads`` heads of the ``index``-th layer; all layers' are consecutive from ``base`` on.

    Raises:
        ValueError: ``base`` is too large for a table, and its primes would take long to find.
    """
    if base > _LARGEST_BASE:
        raise ValueError(f"ngram_vocab_size_base is {base}, more than {_LARGEST_BASE}")
    return tuple(islice(_primes(base), index * heads, (index + 1) * heads))


def table_rows(primes: tuple[int, ...], divisor: int) -> int:
    """Return how many rows the table of these heads has, filled up to a multiple of ``divisor``."""
    return -(-sum(primes) // divisor) * divisor


def _primes(first: int) -> Iterator[int]:
    """Yield the primes that are not below ``first``. Trial division: a few dozen of eight digits take milliseconds."""
    return (number for number in count(max(first, 2)) if all(number % d for d in range(2, isqrt(number) + 1)))


def _mixed(value: int) -> int:
    value = (value + _GOLDEN) & _WORD
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _WORD
    return value ^ value >> 31
