"""Where drafts can be replaced by others, and the clear word where they cannot.

Drafts from the grammar are made in the engine core, between two steps, from the committed output; the worker then has
to know which of the drafts were not sampled by the drafter. Where drafts stay on the device, or are needed before the
tokens that they follow, neither is possible, and the drafter's own drafts are verified as they are.
"""

from __future__ import annotations

import logging
from typing import Any

from infernix_plugin.settings import Settings

logger = logging.getLogger(__name__)

_REPLACEMENTS = ("grammar_drafts", "ngram_copies")
"""Settings whose drafts take the place of the drafter's."""


def obstacle(vllm_config: Any) -> str | None:
    """Return what has to be different for drafts to be replaced, or ``None``."""
    from vllm.platforms import current_platform

    if not vllm_config.num_speculative_tokens:
        return "a speculative configuration"
    if vllm_config.use_v2_model_runner or not current_platform.is_cpu():
        # There drafts never pass through the engine core, and only our own sampler knows the q of each draft.
        return "vLLM's V1 model runner on a CPU"
    if vllm_config.scheduler_config.async_scheduling:
        return "synchronous scheduling, in which drafts come after the tokens that they follow"
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        return "a single pipeline stage"
    return None


def tell(settings: Settings, missing: str, *, speculates: bool) -> None:
    """Name the settings that have no effect: as a warning to who switched them on, and else where there are drafts."""
    for name in _REPLACEMENTS:
        if getattr(settings, name):
            asked_for = name in settings.model_fields_set
            if asked_for or speculates:
                level = logging.WARNING if asked_for else logging.INFO
                logger.log(level, "infernix-plugin: %s has no effect; it needs %s", name, missing)
