"""DFlash2 drafts for the V1 runner: a walk over the slots, each draft sampled given the one before it.

The draft model gives C candidates per slot in one pass, and a score for each of them after each candidate of the slot
before. q of a slot is therefore the row of the candidate that was chosen before, and it is sparse.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.spec_decode.dflash import DFlashProposer

from infernix_plugin.spec_decode.draft_noise import seeded_exponential
from infernix_plugin.spec_decode.proposal import Proposal
from infernix_plugin.spec_decode.sampler import GREEDY_BELOW


def walk(scores: Tensor, candidates: Tensor, temperature: Tensor, noise: Tensor) -> tuple[Tensor, Proposal]:
    """Choose one candidate per slot, from the first slot to the last.

    Args:
        scores: float[B, K, C, C], of each candidate (last) after each candidate of the slot before; in the first slot
            the rows are equal.
        candidates: int64[B, K, C], distinct ids per slot.
        temperature: float32[B]; a request below the greedy limit takes the best candidate, which is not sampled.
        noise: float32[B, K, C], from the exponential distribution.

    Returns:
        The drafts, int64[B, K], and what they were drawn from.
    """
    batch, slots, _ = candidates.shape
    rows = torch.arange(batch)
    greedy = temperature < GREEDY_BELOW
    divisor = torch.where(greedy, 1.0, temperature).unsqueeze(1)
    chosen = torch.zeros(batch, dtype=torch.int64)
    drafts = torch.empty((batch, slots), dtype=torch.int64)
    probabilities = torch.empty(candidates.shape, dtype=torch.float32)
    one_hot = torch.empty((batch, slots), dtype=torch.bool)
    for slot in range(slots):
        row = scores[rows, slot, chosen].float()
        q = (row / divisor).softmax(1)
        certain = greedy | ~q.isfinite().all(1)  # no distribution to draw from; the target judges such a draft alone
        chosen = torch.where(certain, row.argmax(1), (q / noise[:, slot]).argmax(1))
        drafts[:, slot] = candidates[rows, slot, chosen]
        probabilities[:, slot] = q
        one_hot[:, slot] = certain
    return drafts, Proposal(probabilities, candidates, one_hot)


class CandidateDFlashProposer(DFlashProposer):  # type: ignore[misc]
    """vLLM's DFlash proposer, which also samples from a candidate head if the draft has one."""

    _proposal: Proposal | None = None

    def propose(self, *args: Any, **kwargs: Any) -> Any:
        """Propose drafts as vLLM's proposer does."""
        self._proposal = None
        return super().propose(*args, **kwargs)

    def take_last_draft_probs(self) -> Any:
        """Return q of the last drafts."""
        return super().take_last_draft_probs() if self._proposal is None else self._proposal

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, Any]:
        """Sample from float[B * K, H], request by request."""
        if not hasattr(self.model, "compute_candidates"):
            return super()._sample_draft_tokens(hidden_states, sampling_metadata)  # type: ignore[no-any-return]
        slots = self.num_speculative_tokens
        batch = len(hidden_states) // slots
        queries = slice(0, batch * (1 + slots), 1 + slots)
        ids, logits = self.model.compute_candidates(hidden_states)
        candidates = ids.view(batch, slots, -1).long()
        scores = self.model.model.candidate_selector(
            candidates, logits.view(candidates.shape), hidden_states.view(batch, slots, -1), self.input_ids[queries]
        )
        sampled = self._enable_probabilistic_draft_probs and not sampling_metadata.all_greedy
        temperature = sampling_metadata.temperature if sampled else torch.zeros(batch)
        noise = _noise(candidates.shape, self.positions[queries], sampling_metadata.generators if sampled else {})
        drafts, proposal = walk(scores, candidates, temperature, noise)
        self._proposal = proposal if sampled else None
        return drafts.view(-1), None  # vLLM would take q for a dense tensor


def _noise(shape: torch.Size, positions: Tensor, generators: dict[int, torch.Generator]) -> Tensor:
    """Return exponential noise, float32; a seeded request's depends on its seed and position alone."""
    noise = torch.empty(shape).exponential_()
    for row, generator in generators.items():
        seeded_exponential(noise[row], generator, f"dflash2 {int(positions[row])}")
    return noise
