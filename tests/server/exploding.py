"""Faults that no request is to blame for, each switched on by a request's ``vllm_xargs``: {"explode": what}."""

from __future__ import annotations

import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from infernix_plugin.errors import InvalidRegex

MESSAGE = "exploded on purpose"
WORKER = "worker"
"""The worker raises in the step that the request joins."""
LOGITS = "logits"
"""The model's logits of this request are NaN after a few tokens."""
COMPILE = "compile"
"""The engine core refuses what the API server has accepted; the message quotes the constraint."""
ENDLESS = 1900
"""An output that may have this many tokens is slow, so that it lasts until a test has done something to it."""
STEP_SECONDS = 0.03
"""What a step with such an output takes at least."""


def _wish(params: Any) -> Any:
    return (params.extra_args or {}).get("explode")


class Exploding(LogitsProcessor):
    """For :data:`WORKER`, :data:`LOGITS` and :data:`ENDLESS`."""

    AFTER = 3
    """Output tokens, then the logits are NaN."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self._lit = False
        self._broken: dict[int, Any] = {}
        self._endless: set[int] = set()

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._broken.pop(index, None)
            self._endless.discard(index)
        for index, params, _, output in batch_update.added:
            self._lit = self._lit or _wish(params) == WORKER
            self._broken.pop(index, None)
            self._endless.discard(index)
            if _wish(params) == LOGITS:
                self._broken[index] = output
            if (params.max_tokens or 0) >= ENDLESS:
                self._endless.add(index)
        for source, target, direction in batch_update.moved:
            moved, other = self._broken.pop(source, None), self._broken.pop(target, None)
            if moved is not None:
                self._broken[target] = moved
            if other is not None and direction is MoveDirectionality.SWAP:
                self._broken[source] = other
            swapped = {source, target} if direction is MoveDirectionality.SWAP else {source}
            self._endless = self._endless - {source, target} | {
                source + target - index for index in swapped & self._endless
            }

    def apply(self, logits: Any) -> Any:
        if self._lit:
            raise RuntimeError(MESSAGE)
        if self._endless:
            time.sleep(STEP_SECONDS)
        for index, output in self._broken.items():
            if len(output) >= self.AFTER:
                logits[index] = float("nan")
        return logits


class Refusing(AsyncScheduler):
    """For :data:`COMPILE`."""

    def __init__(self, *args: Any, structured_output_manager: Any, **kwargs: Any) -> None:
        super().__init__(*args, structured_output_manager=structured_output_manager, **kwargs)
        prepare = structured_output_manager._prepare

        def refuse(request: Any, *rest: Any) -> Any:
            if _wish(request.sampling_params) == COMPILE:
                raise InvalidRegex(f"this is refused: {request.sampling_params.structured_outputs}")
            return prepare(request, *rest)

        structured_output_manager._prepare = refuse


class Unhurried(AsyncScheduler):
    """For :data:`ENDLESS` where drafts are verified: vLLM takes no logits processors of others there."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        if any((request.max_tokens or 0) >= ENDLESS for request in self.running):
            time.sleep(STEP_SECONDS)
        return super().schedule(*arguments, **named)
