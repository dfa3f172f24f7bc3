"""The start of a server: every engine core, on whichever machine, must have this plugin too, and the same one.

With data parallelism, each machine may start engine cores of its own (``vllm serve --headless``). One without the
plugin joins without a word, and every constrained request that it is given fails.
"""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import Any

from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams.seam import Seam
from infernix_plugin.seams.worker_presence import ABSENT, identity
from infernix_plugin.structured_output.record import KEY


def require_same(own: str, ready: dict[str, Any]) -> None:
    """Compare the server with an engine core that says that it is ready.

    Raises:
        UnsupportedVllmError: one line that names the engine core.
    """
    found = ready.get(KEY, ABSENT)
    if found != own:
        raise UnsupportedVllmError(
            f"infernix-plugin: the engine core of data-parallel rank {ready.get('data_parallel_rank')} has {found}, "
            f"the server has {own}. "
            "Install the same infernix-plugin and vLLM on every machine, and let no VLLM_PLUGINS leave it out."
        )


def _introduced(original: Any) -> Any:
    @functools.wraps(original)
    def _make_ready_response(self: Any) -> dict[str, Any]:
        return {**asdict(original(self)), KEY: identity()}  # encoded as the dataclass is, with one member more

    return _make_ready_response


def _checked(original: Any) -> Any:
    import msgspec

    @functools.wraps(original)
    def _apply_ready_response(self: Any, payload: bytes) -> Any:
        require_same(identity(), msgspec.msgpack.decode(payload) if payload else {})
        return original(self, payload)

    return _apply_ready_response


ENGINE = Seam(
    module="vllm.v1.engine.core",
    attribute="EngineCoreProc._make_ready_response",
    reason="What an engine core says to each server when it has started; nothing in it tells of plugins.",
    replace=_introduced,
    parameters=("self",),
)

SERVER = Seam(
    module="vllm.v1.engine.core_client",
    attribute="MPClient._apply_ready_response",
    reason="Where a server hears from its engine cores; vLLM does not compare their plugins.",
    replace=_checked,
    parameters=("self", "payload"),
)
