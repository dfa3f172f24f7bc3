"""A prompt of a hybrid model beside DFlash, when a block of the cache is about as large as a step.

Reason: with prefix caching vLLM cuts prompts at borders of blocks, and in between only if a block exceeds the most
tokens of a step. A drafter that reads slots of its own (DFlash: one per draft) takes them from every request's share.
So a block that fits the step but not beside these slots is never scheduled: the engine goes round forever and says
nothing. With the limit that a single request really has, vLLM cuts inside the block.

Fits: vLLM 0.32, every device. Engine core, before the scheduler is made. 0.33 was not looked at.
"""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def validate_block_size(self: Any) -> None:
        original(self)
        if self.speculative_config is not None:
            scheduler = self.scheduler_config
            most = scheduler.max_num_batched_tokens - self.speculative_config.max_num_new_slots_for_drafting
            scheduler.max_num_scheduled_tokens = min(scheduler.max_num_scheduled_tokens or most, most)

    return validate_block_size


SEAM = Seam(
    module="vllm.config.vllm",
    attribute="VllmConfig.validate_block_size",
    reason="A block that fits a step, but not beside the slots of parallel drafts, is never scheduled.",
    replace=_replace,
    parameters=("self",),
    releases=((0, 32),),
)
