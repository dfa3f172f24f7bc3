"""What a V1 model runner has to remember for exact speculation, beside vLLM's own state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from infernix_plugin import settings
from infernix_plugin.logits_processors.row_failure import RowFailure, mark_failures
from infernix_plugin.spec_decode.draft_noise import SEEDED_DRAFTS
from infernix_plugin.spec_decode.ngram_copy import NgramCopies, Tokens
from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger, StepProposal, one_hot_positions

_STATE = "infernix_speculation"
"""Attribute of a ``GPUModelRunner``."""

Drafts = list[list[int]] | torch.Tensor
"""Of each row of a batch, in its order: of varying number, or integers [B, K]."""


class RunnerState:
    """One per model runner: q of pending drafts, texts to copy from, and what failed in the step that runs."""

    def __init__(self, copies: NgramCopies | None = None) -> None:
        """Start without requests.

        Args:
            copies: propose what they find in place of the drafter's drafts.
        """
        self._copies = copies
        self._ledger = ProposalLedger()
        self._scheduler_output: Any = None
        self._constrained: frozenset[str] = frozenset()
        self._failures: dict[str, RowFailure] = {}

    def begin(self, scheduler_output: Any, grammar_output: Any) -> None:
        """Note which step is sampled next."""
        self._scheduler_output = scheduler_output
        names = () if grammar_output is None else grammar_output.structured_output_request_ids
        self._constrained = frozenset(names)
        self._failures = {}

    def proposal(self, request_ids: Sequence[str], counts: Sequence[int]) -> StepProposal:
        """Return q of the drafts that this step verifies."""
        return self._ledger.step(request_ids, counts, one_hot_positions(self._scheduler_output))

    def sample(self, runner: Any, draw: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        """Draw the step's tokens by vLLM's ``_sample``; remember the requests for which that was not possible."""
        names = runner.input_batch.req_ids
        plain = spec_decode_metadata is None
        if plain:
            # Where drafts are verified every row is looked at, whether or not a request is constrained and has drafts.
            every = runner.speculative_config is not None
            runner.sampler.guarded = [row for row, name in enumerate(names) if every or name in self._constrained]
        sampler_output = draw(runner, logits, spec_decode_metadata)
        sampler = runner.sampler if plain else runner.rejection_sampler
        self._failures = {names[row]: failure for row, failure in sampler.failures.items()}
        return sampler_output

    def propose(self, runner: Any, sampled: Drafts, draft: Callable[[], Drafts]) -> Drafts:
        """Return the drafts of the next step.

        Args:
            runner: its own record of q becomes that of the drafts returned.
            sampled: the tokens of this step; in a tensor, -1 stands behind the last one.
            draft: calls the drafter. That must be done even for rows that get a copy, to keep its cache in step.
        """
        texts = _texts(runner, sampled)
        SEEDED_DRAFTS.begin([len(text) + len(latest) for text, latest in texts])
        if self._copies is None:
            return draft()
        copies = self._copy(self._copies, runner, texts)
        if runner.speculative_config.method == "ngram":
            runner._draft_probs = None
            return copies
        drafts = draft()
        if not isinstance(drafts, torch.Tensor):
            return [copy or others for copy, others in zip(copies, drafts, strict=True)]
        drafts = drafts.clone()
        replaced = torch.zeros(drafts.shape, dtype=torch.bool)
        for row, copy in enumerate(copies):
            copy = copy[: drafts.shape[1]]
            drafts[row, : len(copy)] = torch.tensor(copy, dtype=drafts.dtype)
            replaced[row, : len(copy)] = True
        proposal = Proposal.of(runner._draft_probs)
        if proposal is not None:
            runner._draft_probs = proposal.replaced(replaced)
        return drafts

    def end(self, runner: Any, output: Any) -> None:
        """Keep q of the drafts just proposed, and tell the engine core what failed."""
        if runner.speculative_config is not None:
            self._ledger.retain(runner.requests)
            if self._copies is not None:
                self._copies.retain(runner.requests)
            self._ledger.record(runner.input_batch.req_ids, Proposal.of(runner._draft_probs))
        mark_failures(output, self._failures)
        self._scheduler_output = None

    def _copy(self, copies: NgramCopies, runner: Any, texts: list[tuple[Tokens, Tokens]]) -> list[list[int]]:
        """Return the copies of each row; one that is full, or in the middle of its prompt, has none."""
        proposed: list[list[int]] = []
        for row, (name, (text, latest)) in enumerate(zip(runner.input_batch.req_ids, texts, strict=True)):
            room = runner.max_model_len - len(text) - len(latest)
            limit = min(self._scheduler_output.num_spec_tokens_to_schedule, room)
            if limit <= 0 or runner.discard_request_mask.np[row]:
                proposed.append([])
            else:
                proposed.append(copies.propose(name, text, latest, limit))
        return proposed


def _texts(runner: Any, sampled: Drafts) -> list[tuple[Tokens, Tokens]]:
    """Return the committed text of each row in two parts: what the batch holds, and what it does not hold yet."""
    batch = runner.input_batch
    texts = [batch.token_ids_cpu[row, : int(batch.num_tokens_no_spec[row])] for row in range(len(batch.req_ids))]
    if not isinstance(sampled, torch.Tensor):  # these drafters run when the batch has been brought up to date
        return [(text, np.empty(0, dtype=np.int32)) for text in texts]
    latest = [[token for token in row if 0 <= token < batch.vocab_size] for row in sampled.tolist()]
    return [(text, np.array(tokens, dtype=np.int32)) for text, tokens in zip(texts, latest, strict=True)]


def state_of(runner: Any) -> RunnerState:
    """Return the state of a model runner."""
    state: RunnerState | None = getattr(runner, _STATE, None)
    if state is None:
        chosen = settings.load(runner.vllm_config.additional_config, {})
        state = RunnerState(NgramCopies(chosen.copy_bounds()) if chosen.ngram_copies else None)
        setattr(runner, _STATE, state)
    return state
