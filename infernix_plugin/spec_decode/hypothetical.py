"""What vLLM's sampler does to the logits of one token per request, done to every row of a speculative step.

The row after ``i`` drafts is treated as if those drafts were already output: penalties, bad words and the minimum
length see them. Options and order are those of vLLM's ``Sampler``, whose ordinary step must have the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.sample.logits_processor.builtin import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.ops.bad_words import apply_bad_words

from infernix_plugin.spec_decode.rejection import Layout

_FORBIDDEN = float("-inf")

PROCESSORS = (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)
"""The processors that :class:`HypotheticalPrefixes` applies row by row; a runner with drafts may have no others."""


class HypotheticalPrefixes:
    """The sampling options of a step's requests at each of its rows."""

    def __init__(self, layout: Layout, drafts: Tensor, metadata: Any) -> None:
        """Bind the options.

        Args:
            layout: of the step.
            drafts: int64[N], all drafts.
            metadata: vLLM's ``SamplingMetadata`` of the batch.
        """
        self._layout = layout
        self._drafts = drafts
        self._metadata = metadata

    def apply(self, logits: Tensor) -> Tensor:
        """Apply everything that also bears on greedy requests to float32[R, V], in place."""
        metadata, layout = self._metadata, self._layout
        if metadata.allowed_token_ids_mask is not None:
            logits.masked_fill_(metadata.allowed_token_ids_mask[layout.request], _FORBIDDEN)
        if metadata.bad_words_token_ids:
            rows = _per_row(metadata.bad_words_token_ids, layout)
            apply_bad_words(logits, rows, _Written(layout, self._drafts, metadata.output_token_ids))
        for processor in metadata.logitsprocs.non_argmax_invariant:
            if isinstance(processor, MinTokensLogitsProcessor):
                self._withhold_stops(logits, processor.min_toks)
            elif isinstance(processor, LogitBiasLogitsProcessor):
                self._bias(logits, processor.biases)
        if not metadata.no_penalties:
            self._penalize(logits)
        holder = metadata.thinking_budget_state_holder
        if holder is not None and holder.has_tracked_requests():
            self._limit_thinking(logits, holder)
        return logits

    def min_p(self) -> Tensor | None:
        """Return min-p per request, float32[B], or ``None`` if no request sets it."""
        for processor in self._metadata.logitsprocs.argmax_invariant:
            if isinstance(processor, MinPLogitsProcessor) and processor.min_p_count:
                per_request: Tensor = processor.min_p_cpu_tensor[: len(self._layout.counts)]
                return per_request
        return None

    def _withhold_stops(self, logits: Tensor, minimum: Mapping[int, tuple[int, Sequence[int], set[int], bool]]) -> None:
        for request, (tokens, written, stops, constrained) in minimum.items():
            if not stops:
                continue
            count = int(self._layout.counts[request])
            rows = range(min(max(tokens - len(written), 0), count + 1))
            ids = torch.tensor(sorted(stops))
            for row in (int(self._layout.start[request]) + offset for offset in rows):
                kept = logits[row, ids]
                logits[row, ids] = _FORBIDDEN
                if constrained and bool((logits[row] == _FORBIDDEN).all()):
                    logits[row, ids] = kept  # the constraint allows nothing but the end, as in vLLM's own step

    def _bias(self, logits: Tensor, biases: Mapping[int, Mapping[int, float]]) -> None:
        for request, bias in biases.items():
            rows = self._rows_of(request)
            ids = torch.tensor(list(bias))
            logits[rows.start : rows.stop, ids] += torch.tensor(list(bias.values()))

    def _penalize(self, logits: Tensor) -> None:
        """Touch only the tokens that occur: a table of counts for every row would be as large as the logits."""
        metadata = self._metadata
        vocabulary = logits.shape[1]
        drafts = self._drafts.numpy()
        for request in range(len(self._layout.counts)):
            repetition = float(metadata.repetition_penalties[request])
            frequency = float(metadata.frequency_penalties[request])
            presence = float(metadata.presence_penalties[request])
            if repetition == 1.0 and frequency == 0.0 and presence == 0.0:
                continue
            rows = self._rows_of(request)
            prompt = metadata.prompt_token_ids[request].numpy()
            output = np.asarray(metadata.output_token_ids[request], dtype=np.int64)
            mine = drafts[rows.start - request : rows.stop - request - 1]
            tokens, index = np.unique(np.concatenate((prompt, output, mine)), return_inverse=True)
            counts = np.zeros((len(rows), len(tokens)), dtype=np.float32)
            counts[:] = np.bincount(index[len(prompt) : len(prompt) + len(output)], minlength=len(tokens))
            for offset, place in enumerate(index[len(prompt) + len(output) :], start=1):
                counts[offset:, place] += 1
            seen = counts > 0
            seen[:, index[: len(prompt)]] = True
            # Beyond the vocabulary is the padding of prompts, below it a draft that is none.
            real = (tokens >= 0) & (tokens < vocabulary)
            count, ids = torch.from_numpy(counts[:, real]), torch.from_numpy(tokens[real])
            values = logits[rows.start : rows.stop, ids]
            penalty = torch.where(torch.from_numpy(seen[:, real]), repetition, 1.0)
            values = values * torch.where(values > 0, 1.0 / penalty, penalty)
            logits[rows.start : rows.stop, ids] = values - frequency * count - presence * (count > 0)

    def _limit_thinking(self, logits: Tensor, holder: Any) -> None:
        metadata, layout = self._metadata, self._layout
        holder.update_state(metadata.output_token_ids, metadata.spec_token_ids, repeat_indices=None)
        last = layout.start + layout.counts
        logits[last] = holder.apply_to_logits(logits[last], True, metadata.spec_token_ids)
        if len(layout.draft_rows):
            before = logits[layout.draft_rows]
            logits[layout.draft_rows] = holder.apply_to_logits(
                before, predict_bonus_token=False, spec_token_ids=metadata.spec_token_ids
            )

    def _rows_of(self, request: int) -> range:
        start = int(self._layout.start[request])
        return range(start, start + int(self._layout.counts[request]) + 1)


class _Written:
    """Output tokens before each row, made when asked for."""

    def __init__(self, layout: Layout, drafts: Tensor, output: Sequence[Sequence[int]]) -> None:
        self._layout = layout
        self._drafts = drafts
        self._output = output

    def __getitem__(self, row: int) -> list[int]:
        request, position = int(self._layout.request[row]), int(self._layout.position[row])
        first = int(self._layout.start[request]) - request
        return [*self._output[request], *self._drafts[first : first + position].tolist()]


def _per_row(options: Mapping[int, Any], layout: Layout) -> dict[int, Any]:
    return {row: options[request] for row, request in enumerate(layout.request.tolist()) if request in options}
