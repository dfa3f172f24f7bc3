"""The end of an API server: it waits for its clients, and no client may wait for a compile that leads nowhere."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> None:
        from infernix_plugin.entrypoints import clients

        clients.give_up(getattr(self, "model_config", None))  # it is shut down even if it was never set up
        original(self, *args, **kwargs)

    return shutdown


SEAM = Seam(
    module="vllm.v1.engine.async_llm",
    attribute="AsyncLLM.shutdown",
    reason="The first thing that a server does on SIGTERM, from where on the engine takes no request any more.",
    replace=_replace,
    parameters=("self", "timeout"),
)
