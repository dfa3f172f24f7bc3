"""The engine core's structured output manager."""

from __future__ import annotations

from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    from infernix_plugin.structured_output.manager import InfernixManager

    return InfernixManager


SEAM = Seam(
    module="vllm.v1.engine.core",
    attribute="StructuredOutputManager",
    reason="vLLM has no registry for managers; ours keeps illegal drafts, looks ahead, and commits all or nothing.",
    replace=_replace,
    parameters=("vllm_config",),
    members={
        "grammar_init": ("self", "request"),
        "validate_tokens": ("self", "request", "spec_tokens"),
        "grammar_bitmask": ("self", "requests", "structured_output_request_ids", "scheduled_spec_decode_tokens"),
        "accept_tokens": ("self", "request", "new_token_ids"),
        "clear_backend": ("self",),
    },
)
