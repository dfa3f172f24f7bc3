"""The rejection sampler of vLLM's V1 runner on the CPU: every row of a step at once, and one draw per request."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID, RejectionSampler

from infernix_plugin.errors import InfernixError
from infernix_plugin.logits_processors.guard import kind_of_failure
from infernix_plugin.logits_processors.row_failure import RowFailure
from infernix_plugin.spec_decode.hypothetical import HypotheticalPrefixes
from infernix_plugin.spec_decode.proposal import StepProposal
from infernix_plugin.spec_decode.rejection import Layout, Targets, Verdict, verify
from infernix_plugin.spec_decode.truncation import truncate

GREEDY_BELOW = 1e-5
"""A temperature below this is greedy, as in vLLM's ``Sampler``."""


class ExactRejectionSampler(RejectionSampler):  # type: ignore[misc]
    """Verifies drafts against the q that produced them, with every sampling option at the hypothetical prefix.

    Attributes:
        failures: requests of the latest step, by batch index, for which no token could be drawn. Their row of the
            output ends with the placeholder 0.
    """

    def __init__(self, sampler: Any, spec_config: Any = None, device: torch.device | None = None) -> None:
        """Take the place of vLLM's.

        Raises:
            InfernixError: ``spec_config`` asks for another verification than rejection sampling.
        """
        super().__init__(sampler, spec_config, device)
        if self.synthetic_mode:
            raise InfernixError("Synthetic acceptance emits drafts that the target would reject.")
        self.failures: dict[int, RowFailure] = {}

    def forward(
        self,
        metadata: Any,
        draft_probs: StepProposal | Tensor | None,
        logits: Tensor,
        sampling_metadata: Any,
    ) -> SamplerOutput:
        """Verify the drafts of a step.

        Args:
            metadata: vLLM's ``SpecDecodeMetadata``: N drafts of B requests.
            draft_probs: q of the drafts, or float32[N, V], or ``None`` if all are one-hot.
            logits: float[R, V], R = N + B rows, request by request; masked, and changed in place.
            sampling_metadata: vLLM's ``SamplingMetadata`` of the batch.

        Returns:
            Token ids int32[B, K + 1], -1 behind the last token of each request; log-probabilities row by row.
        """
        self.failures = {}
        layout = Layout.of(metadata.num_draft_tokens)
        drafts = metadata.draft_token_ids.long()
        wanted = sampling_metadata.max_num_logprobs is not None or bool(sampling_metadata.logprob_token_ids)
        raw = logits.to(torch.float32, copy=True) if wanted and not self.is_processed_logprobs_mode else None
        options = HypotheticalPrefixes(layout, drafts, sampling_metadata)
        processed = options.apply(logits.float())
        targets = _targets(processed, layout, options, sampling_metadata, keep=wanted and raw is None)
        verdict = verify(layout, targets, drafts, _lined_up(draft_probs, drafts), _uniforms(layout, sampling_metadata))
        self.failures = _failures(verdict, layout, processed, sampling_metadata)
        tokens = _output(verdict, layout, drafts, metadata.max_spec_len)
        logprobs = None
        if wanted:
            logprobs = self._logprobs(processed if raw is None else raw, tokens, layout, sampling_metadata)
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def _logprobs(self, logits: Tensor, tokens: Tensor, layout: Layout, sampling_metadata: Any) -> Any:
        """Return log-probabilities for every place of ``tokens``, those of placeholders undefined."""
        there = (tokens != PLACEHOLDER_TOKEN_ID).flatten().nonzero().squeeze(1)
        request, position = there // tokens.shape[1], there % tokens.shape[1]
        chosen = logits[layout.start[request] + position]
        if not self.is_logits_logprobs_mode:
            chosen = self.sampler.compute_logprobs(chosen)
        sampled = tokens.flatten()[there].long()
        special = sampling_metadata.logprob_token_ids
        if special:
            per_row = {row: special[of] for row, of in enumerate(request.tolist()) if of in special}
            found = self.sampler.gather_specific_token_logprobs(chosen, per_row, sampled) if per_row else None
        else:
            found = self.sampler.gather_logprobs(chosen, sampling_metadata.max_num_logprobs, sampled)
        return None if found is None else LogprobsTensors(*(_spread(part, there, tokens.numel()) for part in found[:3]))


def _lined_up(draft_probs: StepProposal | Tensor | None, drafts: Tensor) -> StepProposal:
    if draft_probs is None:
        return StepProposal.certain(len(drafts))
    return StepProposal.dense(draft_probs) if isinstance(draft_probs, Tensor) else draft_probs


def _targets(logits: Tensor, layout: Layout, options: HypotheticalPrefixes, metadata: Any, *, keep: bool) -> Targets:
    """Return p of every row; with ``keep``, leave in ``logits`` what p was made of."""
    if metadata.all_greedy:
        greedy = torch.ones(len(layout.counts), dtype=torch.bool)
    else:
        greedy = metadata.temperature < GREEDY_BELOW
    rows_greedy = greedy[layout.request]
    best = torch.zeros(len(logits), dtype=torch.int64)
    sound = torch.ones(len(logits), dtype=torch.bool)
    place = torch.zeros(len(logits), dtype=torch.int64)
    weights = totals = None
    if bool(rows_greedy.any()):
        rows = None if bool(rows_greedy.all()) else rows_greedy.nonzero().squeeze(1)
        top = (logits if rows is None else logits[rows]).max(1)
        into = slice(None) if rows is None else rows
        best[into], sound[into] = top.indices, top.values.isfinite()
    if not bool(rows_greedy.all()):
        rows = (~rows_greedy).nonzero().squeeze(1)
        place[rows] = torch.arange(len(rows))
        own = logits if len(rows) == len(logits) else logits[rows]
        own = _truncated(own, layout.request[rows], options, metadata)
        if keep and own is not logits:
            logits[rows] = own
        highest = own.amax(1, keepdim=True)
        weights = (own - highest).exp_()
        totals = weights.sum(1)
        sound[rows] = totals.isfinite()
    return Targets(best, weights, totals, place, greedy, sound)


def _truncated(logits: Tensor, request: Tensor, options: HypotheticalPrefixes, metadata: Any) -> Tensor:
    """Apply temperature, min-p, top-k and top-p to rows of random requests, in place."""
    logits.div_(metadata.temperature[request].unsqueeze(1))
    limits = (options.min_p(), metadata.top_k, metadata.top_p)
    return truncate(logits, *(None if limit is None else limit[request] for limit in limits))


def _uniforms(layout: Layout, metadata: Any) -> Tensor:
    """Return float64[R] in [0, 1); a seeded request's come from its own stream, wherever it is in the batch."""
    if metadata.all_greedy:
        return torch.empty(0, dtype=torch.float64)
    uniforms = torch.rand(len(layout.request), dtype=torch.float64)
    for request, generator in metadata.generators.items():
        start, rows = int(layout.start[request]), int(layout.counts[request]) + 1
        uniforms[start : start + rows] = torch.rand(rows, dtype=torch.float64, generator=generator)
    return uniforms


def _failures(verdict: Verdict, layout: Layout, logits: Tensor, metadata: Any) -> dict[int, RowFailure]:
    failures = {}
    for request in verdict.failed.nonzero().squeeze(1).tolist():
        position = int(verdict.accepted[request])
        row = logits[int(layout.start[request]) + position]
        failures[request] = RowFailure(kind_of_failure(row, metadata, request), position)
    return failures


def _output(verdict: Verdict, layout: Layout, drafts: Tensor, longest: int) -> Tensor:
    tokens = torch.full((len(layout.counts), longest + 1), PLACEHOLDER_TOKEN_ID, dtype=torch.int32)
    request = layout.request[layout.draft_rows]
    position = layout.position[layout.draft_rows]
    kept = position < verdict.accepted[request]
    tokens[request[kept], position[kept]] = drafts[kept].int()
    tokens[torch.arange(len(tokens)), verdict.accepted] = verdict.token.int()
    return tokens


def _spread(values: Tensor, places: Tensor, size: int) -> Tensor:
    spread = values.new_zeros((size, *values.shape[1:]))
    spread[places] = values
    return spread
