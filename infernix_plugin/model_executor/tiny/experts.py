"""Sparse mixture-of-experts blocks of tiny models: routed experts and one shared expert behind a gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from infernix_plugin.model_executor.tiny.qwen3_5 import HIDDEN, MIXING, Tensors, matrix

SHARPNESS = 2.0
"""Root mean square of the router's logits: the best experts get most of the weight, but ties are rare."""


@dataclass(frozen=True)
class Experts:
    """Sizes of a block: ``count`` routed experts of which a token uses ``chosen``, each ``width`` wide."""

    count: int = 8
    chosen: int = 2
    width: int = 64
    shared_width: int = 64

    def config(self) -> dict[str, int]:
        """Return the entries of ``config.json``."""
        return {
            "num_experts": self.count,
            "num_experts_per_tok": self.chosen,
            "moe_intermediate_size": self.width,
            "shared_expert_intermediate_size": self.shared_width,
        }

    def tensors(self, rng: np.random.Generator) -> Tensors:
        """Return the block's weights by their names below the decoder layer, experts stacked as in real checkpoints."""
        gate_up = rng.standard_normal((self.count, 2 * self.width, HIDDEN), dtype=np.float32) / np.sqrt(HIDDEN)
        down = rng.standard_normal((self.count, HIDDEN, self.width), dtype=np.float32) / np.sqrt(self.width)
        return {
            "mlp.gate.weight": matrix(rng, self.count, HIDDEN, SHARPNESS),
            "mlp.experts.gate_up_proj": gate_up.astype(np.float32),
            "mlp.experts.down_proj": (4 * MIXING * down).astype(np.float32),
            "mlp.shared_expert.gate_proj.weight": matrix(rng, self.shared_width, HIDDEN),
            "mlp.shared_expert.up_proj.weight": matrix(rng, self.shared_width, HIDDEN),
            "mlp.shared_expert.down_proj.weight": matrix(rng, HIDDEN, self.shared_width, 2 * MIXING),
            "mlp.shared_expert_gate.weight": matrix(rng, 1, HIDDEN),
        }
