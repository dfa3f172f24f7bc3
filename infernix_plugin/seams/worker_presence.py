"""The engine core's start: every worker, on whichever machine, must have this plugin too, and the same one.

A worker without it draws tokens by vLLM's own samplers: the ranks of a model then hold different texts, and drafts are
verified against another distribution than the one that they were drawn from. Nothing would say so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams import post_import, versions
from infernix_plugin.seams.seam import Seam

logger = logging.getLogger(__name__)

ABSENT = "no active infernix-plugin"


def identity(worker: Any = None) -> str:
    """Return what runs in this process; called in every worker, by a name that must be importable there."""
    if versions.disabled() or not post_import.is_installed():
        return ABSENT
    try:
        own = metadata.version("infernix-plugin")
    except metadata.PackageNotFoundError:
        own = "from a source tree"
    return f"infernix-plugin {own} on vLLM {versions.installed_version()}"


def require_same(own: str, found: Sequence[str]) -> None:
    """Compare the engine core with its workers, which are listed by rank.

    Raises:
        UnsupportedVllmError: one line that names the first rank that differs.
    """
    for rank, other in enumerate(found):
        if other != own:
            raise UnsupportedVllmError(
                f"infernix-plugin: the worker of rank {rank} has {other}, the engine core has {own}. "
                "Install the same infernix-plugin and vLLM on every machine, and let no VLLM_PLUGINS leave it out."
            )


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def _initialize_kv_caches(self: Any, vllm_config: Any) -> Any:
        own = identity()
        try:
            found = self.model_executor.collective_rpc(identity)
        except Exception as error:
            raise UnsupportedVllmError(
                "infernix-plugin: a worker cannot say which plugin it has; is infernix-plugin installed on its machine?"
            ) from error
        require_same(own, found)
        logger.info("%s is active in the engine core and in %d worker(s)", own, len(found))
        return original(self, vllm_config)

    return _initialize_kv_caches


SEAM = Seam(
    module="vllm.v1.engine.core",
    attribute="EngineCore._initialize_kv_caches",
    reason="The first step of an engine core that has workers; vLLM does not compare the plugins of its processes.",
    replace=_replace,
    parameters=("self", "vllm_config"),
)
