"""Random weights for a configuration of any size: for speed and for numbers, where the output may be noise.

Names and shapes come from the table of families. Every map keeps the size of what it is applied to, so activations are
of order one whatever the sizes are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.model_executor.tiny.qwen3_5 import MIXING, Tensors
from infernix_plugin.model_executor.weights.layout import Part, Slot, slots_of

LOGITS = 0.6
"""Standard deviation of the logits. Of two thousand, the best two are then 0.2 apart, in the mean."""


def tensors(config: dict[str, Any], seed: int) -> Tensors:
    """Return every weight of a ``config.json`` by its checkpoint name, float32.

    Raises:
        CheckpointError: the architecture is not in the table.
    """
    rng = np.random.default_rng(seed)
    return {slot.name: _draw(rng, slot) for slot in slots_of(config, ()) if not slot.optional}


def _draw(rng: np.random.Generator, slot: Slot) -> NDArray[np.float32]:
    name = slot.name.removesuffix(".weight").rpartition(".")[2]
    if name == "A_log":  # decay rates: memories of a thousand tokens to two
        return np.log(np.geomspace(0.001, 0.5, slot.shape[0])).astype(np.float32)
    if "norm" in name:
        added_to_one = "linear_attn" not in slot.name and slot.part in (Part.TEXT, Part.MTP)
        return np.full(slot.shape, float(not added_to_one), dtype=np.float32)
    if len(slot.shape) == 1:
        return np.zeros(slot.shape, dtype=np.float32)
    gain = {"lm_head": LOGITS, "embed_tokens": math.sqrt(slot.shape[-1])}.get(name, 1.0)
    if name in ("o_proj", "out_proj", "down_proj"):
        gain = MIXING
    drawn = rng.standard_normal(slot.shape, dtype=np.float32)
    return drawn * np.float32(gain / math.sqrt(slot.shape[-1]))
