"""A block as large as a step beside a drafter with slots of its own: vLLM's scheduler, as it was and mended."""

from types import SimpleNamespace

import pytest

from infernix_plugin.seams import scheduled_tokens
from infernix_plugin.seams.cpu_faults import install_import_repairs
from infernix_plugin.seams.versions import installed_release

install_import_repairs()
pytest.importorskip("vllm")
needs_032 = pytest.mark.skipif(installed_release() != (0, 32), reason="of vLLM 0.32")

STEP, PROMPT = 640, 1500


def limit(slots, configured=STEP):
    """Return the most tokens of a step, of an engine whose drafter has so many slots of its own."""
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_batched_tokens=STEP, max_num_scheduled_tokens=configured),
        speculative_config=None if slots is None else SimpleNamespace(max_num_new_slots_for_drafting=slots),
        validated=False,
    )

    def validate_block_size(self):
        self.validated = True

    scheduled_tokens.SEAM.replace(validate_block_size)(config)
    assert config.validated
    return config.scheduler_config.max_num_scheduled_tokens


def first_chunk(block_size, most, slots):
    """Return how many tokens of a prompt vLLM's own scheduler takes into the first step."""
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduler = SimpleNamespace(
        cache_config=SimpleNamespace(block_size=block_size),
        scheduler_config=SimpleNamespace(long_prefill_token_threshold=0),
        block_size=block_size, hash_block_size=block_size, max_num_scheduled_tokens=most, use_eagle_block_drop=True,
        mamba_partial_cache_hit=False, mamba_has_prefill_checkpoint_blocks=False, mamba_shared_prefix_checkpoint=False,
    )  # fmt: skip
    request = SimpleNamespace(
        num_computed_tokens=0, num_prompt_tokens=PROMPT, num_tokens=PROMPT, shared_prefix_boundary=0
    )
    return Scheduler._mamba_block_aligned_split(scheduler, request, min(most, STEP - slots))


@needs_032
@pytest.mark.parametrize(("block_size", "taken"), [(640, 637), (638, 637), (637, 637), (320, 320)])
def test_a_prompt_is_begun(block_size, taken):
    assert first_chunk(block_size, limit(slots=3), slots=3) == taken


@needs_032
def test_without_the_repair_it_never_is():
    assert first_chunk(640, STEP, slots=3) == 0


def test_other_limits_stay_as_they_are():
    assert limit(slots=None) == STEP
    assert limit(slots=0) == STEP
    assert limit(slots=3, configured=100) == 100
