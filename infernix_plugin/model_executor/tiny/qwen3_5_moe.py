"""The MoE Qwen3.5 text family: the dense one with routed experts and a shared one in place of each MLP."""

from __future__ import annotations

from typing import Any

from infernix_plugin.model_executor.tiny import qwen3_5
from infernix_plugin.model_executor.tiny.associations import Associations
from infernix_plugin.model_executor.tiny.experts import Experts

EXPERTS = Experts()


def config(vocab_size: int, ids: dict[str, int]) -> dict[str, Any]:
    """Return ``config.json``; ``ids`` maps control tokens to their ids."""
    dense = qwen3_5.config(vocab_size, ids)
    del dense["intermediate_size"]
    names = {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text"}
    return dense | names | EXPERTS.config()


def tensors(table: Associations, vocab_size: int, seed: int) -> qwen3_5.Tensors:
    """Return every weight by its checkpoint name, float32, rows beyond the tokenizer included."""
    return qwen3_5.tensors(table, vocab_size, seed, block=EXPERTS.tensors)
