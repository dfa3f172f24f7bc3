"""Randomness of drafts that does not depend on who else is in the batch: a seeded request's is its own.

It must not come from the request's own generator, whose draws decide what the sampler keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from infernix_plugin.spec_decode.sampler import GREEDY_BELOW


def seeded_exponential(noise: Tensor, generator: torch.Generator, place: str) -> None:
    """Fill ``noise``, float32, from the exponential distribution, given a request's seed and a place in its output."""
    name = f"{generator.initial_seed()} {place}".encode()
    seed = int.from_bytes(hashlib.blake2b(name, digest_size=7).digest(), "little")
    noise.exponential_(generator=torch.Generator().manual_seed(seed))


class SeededDrafts:
    """Draws the drafts of seeded requests once more, each given its seed and its place in the output."""

    def __init__(self) -> None:
        self._lengths: Sequence[int] = ()
        self._slot = 0

    def begin(self, lengths: Sequence[int]) -> None:
        """Expect one proposal for a batch whose texts have these lengths."""
        self._lengths = lengths
        self._slot = 0

    def redraw(
        self, drafts: Tensor, q: Tensor, temperature: Tensor, generators: Mapping[int, torch.Generator]
    ) -> Tensor:
        """Return the next drafts of each request, those of unseeded and of greedy ones unchanged.

        Args:
            drafts: int64[B * S], the drafts of S slots, request by request.
            q: float32[B * S, V], what they are drawn from.
            temperature: float32[B * S].
            generators: of the seeded requests, by their number in the batch.
        """
        slots = len(drafts) // max(1, len(self._lengths))
        for request, generator in generators.items():
            for slot in range(slots):
                row = request * slots + slot
                if temperature[row] >= GREEDY_BELOW:
                    noise = torch.empty(q.shape[1])
                    seeded_exponential(noise, generator, f"{self._lengths[request]} {self._slot + slot}")
                    drafts[row] = (q[row] / noise).argmax()
        self._slot += slots
        return drafts


SEEDED_DRAFTS = SeededDrafts()
"""That of this worker process."""
