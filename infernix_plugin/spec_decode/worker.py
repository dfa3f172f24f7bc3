"""What a V1 model runner has to remember for exact speculation, beside vLLM's own state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infernix_plugin.logits_processors.row_failure import RowFailure, mark_failures
from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger, StepProposal, one_hot_positions

_STATE = "infernix_speculation"
"""Attribute of a ``GPUModelRunner``."""


class RunnerState:
    """One per model runner: q of pending drafts, and what failed in the step that runs."""

    def __init__(self) -> None:
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
            runner.sampler.guarded = [row for row, name in enumerate(names) if name in self._constrained]
        sampler_output = draw(runner, logits, spec_decode_metadata)
        sampler = runner.sampler if plain else runner.rejection_sampler
        self._failures = {names[row]: failure for row, failure in sampler.failures.items()}
        return sampler_output

    def end(self, runner: Any, output: Any) -> None:
        """Keep q of the drafts just proposed, and tell the engine core what failed."""
        if runner.speculative_config is not None:
            self._ledger.retain(runner.requests)
            self._ledger.record(runner.input_batch.req_ids, Proposal.of(runner._draft_probs))
        mark_failures(output, self._failures)
        self._scheduler_output = None


def state_of(runner: Any) -> RunnerState:
    """Return the state of a model runner."""
    state: RunnerState | None = getattr(runner, _STATE, None)
    if state is None:
        state = RunnerState()
        setattr(runner, _STATE, state)
    return state
