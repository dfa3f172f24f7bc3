"""A logits processor that raises in the worker when a request says so: the fault that no request is to blame for."""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor import LogitsProcessor

MESSAGE = "exploded on purpose"


class Exploding(LogitsProcessor):
    """Raises in the step that a request with ``vllm_xargs: {"explode": 1}`` joins."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self._lit = False

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: Any) -> None:
        if batch_update is not None:
            for _, params, _, _ in batch_update.added:
                self._lit = self._lit or "explode" in (params.extra_args or {})

    def apply(self, logits: Any) -> Any:
        if self._lit:
            raise RuntimeError(MESSAGE)
        return logits
