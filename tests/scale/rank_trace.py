"""vLLM's ``worker_extension_cls`` for tests: what each rank of a model draws, asked for by ``collective_rpc``."""

from typing import Any


class RankTrace:
    """Mixed into the worker of every rank."""

    model_runner: Any

    def begin_trace(self) -> dict[str, Any]:
        """Write down every step from now on; returns what draws tokens here."""
        from infernix_plugin import settings
        from infernix_plugin.spec_decode.proposal import one_hot_positions
        from infernix_plugin.spec_decode.worker import state_of

        runner = self.model_runner
        self._steps: list[tuple[Any, ...]] = []

        def sample(logits: Any, metadata: Any) -> Any:
            self._spoil(logits, metadata)
            output = type(runner)._sample(runner, logits, metadata)
            scheduled = state_of(runner)._scheduler_output
            drafts = {name: list(ids) for name, ids in scheduled.scheduled_spec_decode_tokens.items()}
            tokens = output.sampled_token_ids.tolist()
            self._steps.append((list(runner.input_batch.req_ids), drafts, dict(one_hot_positions(scheduled)), tokens))
            return output

        runner._sample = sample
        self._spoiled: list[int] = []
        own = settings.load(runner.vllm_config.additional_config, {})
        samplers = [runner.sampler, getattr(runner, "rejection_sampler", None)]  # the second only with drafts
        return {
            "samplers": [type(sampler).__name__ for sampler in samplers],
            "settings": own.model_dump(),
        }

    def spoil(self, prompt: list[int]) -> None:
        """Make NaN of every row of the requests with this prompt."""
        self._spoiled = prompt

    def steps(self) -> list[tuple[Any, ...]]:
        """Request ids, drafts, marked positions and drawn tokens of each step."""
        return self._steps

    def _spoil(self, logits: Any, metadata: Any) -> None:
        start = 0
        for index, name in enumerate(self.model_runner.input_batch.req_ids):
            rows = 1 if metadata is None else metadata.num_draft_tokens[index] + 1
            if self._spoiled and self.model_runner.requests[name].prompt_token_ids == self._spoiled:
                logits[start : start + rows] = float("nan")
            start += rows
