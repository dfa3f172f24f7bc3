"""DFlash and DFlash2 drafts for the tiny Qwen3.5 text model.

A DFlash draft reads the last sampled token and K mask tokens at once, beside keys and values made from hidden states of
the target, whose embedding and head it uses. DFlash2 adds a causal convolution over those K + 1 slots and a selector,
which scores a candidate for a slot by the candidate chosen for the slot before it.

In DFlash2 the convolution hands the sampled token to the first mask and the selector knows the word statistics, so its
drafts are often what the target says. The plain draft has no such shortcut, and is nearly always wrong.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.model_executor.tiny.associations import Associations, output_head
from infernix_plugin.model_executor.tiny.qwen3_5 import (
    ATTENTION_HEADS,
    CONSTANT,
    HEAD_DIM,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    MIXING,
    Tensors,
    matrix,
)
from infernix_plugin.model_executor.tiny.qwen3_5 import LAYERS as TARGET_DEPTH

Draft = Literal["dflash", "dflash2"]

LAYERS = 2
TARGET_LAYERS = (0, 2)
"""Layers of the target whose outputs the draft reads."""
MASK_TOKEN = "<|fim_pad|>"

SELECTOR_RANK = 64
SELECTOR_TOP_K = 16
TAPS = 2
CONV_GROUP = 64
"""Channels that share one input-dependent coefficient."""

PASS = 16.0
"""What the MLP of a DFlash2 layer multiplies the convolved stream by, about: the token before outweighs the mask."""


def config(draft: Draft, vocab_size: int, mask_token_id: int) -> dict[str, Any]:
    """Return ``config.json``."""
    details: dict[str, Any] = {"mask_token_id": mask_token_id, "target_layer_ids": list(TARGET_LAYERS)}
    if draft == "dflash2":
        details |= {
            "conv_group_size": CONV_GROUP,
            "conv_kernel_size": TAPS,
            "selector_rank": SELECTOR_RANK,
            "selector_top_k": SELECTOR_TOP_K,
        }
    return {
        "architectures": ["DFlash2DraftModel" if draft == "dflash2" else "DFlashDraftModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dflash_config": details,
        "dtype": "bfloat16",
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": 32_768,
        "model_type": "qwen3",
        "num_attention_heads": ATTENTION_HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "num_target_layers": TARGET_DEPTH,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1_000_000, "rope_type": "default"},
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocab_size,
    }


def tensors(draft: Draft, table: Associations, vocab_size: int, seed: int) -> Tensors:
    """Return every weight by its checkpoint name, float32, rows beyond the tokenizer included."""
    rng = np.random.default_rng(seed)
    weights: Tensors = {
        "fc.weight": matrix(rng, HIDDEN, HIDDEN * len(TARGET_LAYERS)),
        "hidden_norm.weight": np.ones(HIDDEN, dtype=np.float32),
        "norm.weight": np.ones(HIDDEN, dtype=np.float32),
    }
    for index in range(LAYERS):
        layer = _attention(rng) | (_passing_mlp() if draft == "dflash2" else _mlp(rng))
        if draft == "dflash2":
            layer |= _convolution(rng, "attention_conv.", previous=0.0) | _convolution(rng, "mlp_conv.", previous=1.0)
        weights |= {f"layers.{index}.{name}": value for name, value in layer.items()}
    if draft == "dflash2":
        weights |= _selector(rng, table, vocab_size)
    return weights


def _attention(rng: np.random.Generator) -> Tensors:
    wide, narrow = ATTENTION_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "input_layernorm.weight": np.ones(HIDDEN, dtype=np.float32),
        "post_attention_layernorm.weight": np.ones(HIDDEN, dtype=np.float32),
        "self_attn.q_proj.weight": matrix(rng, wide, HIDDEN),
        "self_attn.k_proj.weight": matrix(rng, narrow, HIDDEN),
        "self_attn.v_proj.weight": matrix(rng, narrow, HIDDEN),
        "self_attn.o_proj.weight": matrix(rng, HIDDEN, wide, MIXING),
        "self_attn.q_norm.weight": np.ones(HEAD_DIM, dtype=np.float32),
        "self_attn.k_norm.weight": np.ones(HEAD_DIM, dtype=np.float32),
    }


def _mlp(rng: np.random.Generator) -> Tensors:
    return {
        "mlp.gate_proj.weight": matrix(rng, INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": matrix(rng, INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": matrix(rng, HIDDEN, INTERMEDIATE, 2 * MIXING),
    }


def _passing_mlp() -> Tensors:
    """Return a gated MLP that multiplies its input by a constant: the gate sees the first entry, which is constant."""
    gate = np.zeros((INTERMEDIATE, HIDDEN), dtype=np.float32)
    gate[:, 0] = 1
    same = np.eye(INTERMEDIATE, HIDDEN, dtype=np.float32)
    return {
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": same,
        "mlp.down_proj.weight": np.ascontiguousarray(same.T) * np.float32(PASS / CONSTANT),
    }


def _convolution(rng: np.random.Generator, prefix: str, *, previous: float) -> Tensors:
    """Return a convolution before a block and one behind it; the first takes ``previous`` of the slot before.

    The base kernels are indexed by [before or behind, slots back, channel].
    """
    base = np.zeros((2, TAPS, HIDDEN), dtype=np.float32)
    base[0, 0], base[0, 1] = 1 - previous, previous
    base[1, 0] = 1
    return {
        f"{prefix}base_kernel": base,
        f"{prefix}kernel_projection.weight": matrix(rng, 2 * TAPS * HIDDEN // CONV_GROUP, HIDDEN, MIXING / 4),
    }


def _selector(rng: np.random.Generator, table: Associations, vocab_size: int) -> Tensors:
    """Return codebooks whose product is about the association of two tokens; the frequencies are in the logits."""
    predecessor = rng.standard_normal((vocab_size, SELECTOR_RANK), dtype=np.float32)
    predecessor[:, 0] = 1
    successor = output_head(table, predecessor)
    successor[:, 0] = 0
    return {
        "candidate_selector.predecessor_codebook": predecessor,
        "candidate_selector.successor_codebook": successor,
        "candidate_selector.hidden_projection.weight": _constant_first(SELECTOR_RANK),
    }


def _constant_first(rows: int) -> NDArray[np.float32]:
    """Return a map to ``rows`` equal values, about 1, made of the constant first entry of a normed hidden state."""
    weight = np.zeros((rows, HIDDEN), dtype=np.float32)
    weight[:, 0] = 1 / CONSTANT
    return weight
