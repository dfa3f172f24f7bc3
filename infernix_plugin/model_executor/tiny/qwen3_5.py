"""The dense Qwen3.5 text family: three gated-delta-net layers to one full-attention layer, and one MTP layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.model_executor.tiny.associations import Associations, output_head

HIDDEN = 256
INTERMEDIATE = 384
LAYERS = 4
FULL_ATTENTION_EVERY = 4
ATTENTION_HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
KEY_HEADS, VALUE_HEADS = 2, 4
LINEAR_HEAD_DIM = 128
"""As in the real models; vLLM's CPU kernels for gated delta nets take 64 as well, and no other."""
CONV_WIDTH = 4

CONSTANT = 8.0
"""First entry of every embedding; its share of the hidden state's energy carries the token frequencies."""

MIXING = 0.2
"""Root mean square of what one block adds to the residual stream, where an embedding has 1. Larger: more context, less
habit. Measured: the eight blocks together move the stream by 0.5, enough that a wrong state changes the output."""

INHIBITION = 4.0
"""How strongly attention takes the mean of the past from the present, per query head, before its gate of about 1/2."""

Tensors = dict[str, NDArray[np.float32]]
Block = Callable[[np.random.Generator], Tensors]


def config(vocab_size: int, ids: dict[str, int]) -> dict[str, Any]:
    """Return ``config.json``; ``ids`` maps control tokens to their ids."""
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": ids["<|im_end|>"],
        "full_attention_interval": FULL_ATTENTION_EVERY,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "layer_types": [layer_type_of(index) for index in range(LAYERS)],
        "linear_conv_kernel_dim": CONV_WIDTH,
        "linear_key_head_dim": LINEAR_HEAD_DIM,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_value_head_dim": LINEAR_HEAD_DIM,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 32_768,
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": ATTENTION_HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": ids["<|endoftext|>"],
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6,
        # No M-RoPE sections, unlike the multimodal checkpoints: for text all three position rows are equal. vLLM 0.32
        # strips them from a text target but not from its MTP drafter, whose rotary kernel then writes out of bounds.
        "rope_parameters": {
            "partial_rotary_factor": 0.25,
            "rope_theta": 10_000_000,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocab_size,
    }


def feed_forward(rng: np.random.Generator) -> Tensors:
    """Return the weights of a gated MLP by their names below the decoder layer."""
    return {
        "mlp.gate_proj.weight": matrix(rng, INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": matrix(rng, INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": matrix(rng, HIDDEN, INTERMEDIATE, 2 * MIXING),
    }


def tensors(table: Associations, vocab_size: int, seed: int, block: Block = feed_forward) -> Tensors:
    """Return every weight by its checkpoint name, float32, rows beyond the tokenizer included.

    ``block`` draws what follows the attention of each layer.
    """
    rng = np.random.default_rng(seed)
    embedding = embeddings(rng, vocab_size)
    weights: Tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": output_head(table, embedding)}
    for index in range(LAYERS):
        weights |= _layer(rng, f"model.layers.{index}.", layer_type_of(index), block)
    weights["model.norm.weight"] = offset(HIDDEN)
    # The MTP layer sees the next token's embedding and the hidden state before it. It keeps the former and mixes in a
    # little of the latter: its guess is the habit of the language, often but not always what the layers will say.
    joint = np.concatenate([np.eye(HIDDEN, dtype=np.float32), matrix(rng, HIDDEN, HIDDEN, MIXING / 2)], axis=1)
    weights |= {
        "mtp.fc.weight": joint,
        "mtp.pre_fc_norm_embedding.weight": offset(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": offset(HIDDEN),
        **_layer(rng, "mtp.layers.0.", "full_attention", block),
        "mtp.norm.weight": offset(HIDDEN),
    }
    return weights


def embeddings(rng: np.random.Generator, vocab_size: int) -> NDArray[np.float32]:
    """Draw rows of root mean square 1 whose first entry is the same for every token."""
    rows = rng.standard_normal((vocab_size, HIDDEN), dtype=np.float32)
    rows[:, 0] = CONSTANT
    rows *= np.sqrt(HIDDEN / np.square(rows).sum(axis=1, keepdims=True))
    rows[:, 0] = rows[:, 0].mean()
    return rows


def layer_type_of(index: int) -> str:
    """Return the kind of the ``index``-th layer, from zero."""
    return "full_attention" if (index + 1) % FULL_ATTENTION_EVERY == 0 else "linear_attention"


def _layer(rng: np.random.Generator, prefix: str, layer_type: str, block: Block) -> Tensors:
    norms = {"input_layernorm.weight": offset(HIDDEN), "post_attention_layernorm.weight": offset(HIDDEN)}
    mixer = attention(rng) if layer_type == "full_attention" else gated_delta_net(rng)
    parts = mixer | norms | block(rng)
    return {prefix + name: value for name, value in parts.items()}


def attention(rng: np.random.Generator) -> Tensors:
    """Attention that spreads over the past and takes what it finds there away from the stream.

    Values are one half of the hidden state, as it is; the output subtracts them. So habits that were followed lately
    grow weaker, and greedy decoding is slow to end in a loop. Query head ``h`` reads key-value head ``h // 2``.
    """
    wide, narrow = ATTENTION_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    values = np.eye(narrow, HIDDEN, k=1, dtype=np.float32)
    per_query_head = np.repeat(values.reshape(KV_HEADS, HEAD_DIM, HIDDEN), ATTENTION_HEADS // KV_HEADS, axis=0)
    return {
        "self_attn.q_proj.weight": matrix(rng, 2 * wide, HIDDEN),  # per head: query, then output gate
        "self_attn.k_proj.weight": matrix(rng, narrow, HIDDEN),
        "self_attn.v_proj.weight": values,
        "self_attn.o_proj.weight": matrix(rng, HIDDEN, wide, MIXING) - INHIBITION * per_query_head.reshape(wide, -1).T,
        "self_attn.q_norm.weight": offset(HEAD_DIM),
        "self_attn.k_norm.weight": offset(HEAD_DIM),
    }


def gated_delta_net(rng: np.random.Generator) -> Tensors:
    """Linear attention whose heads remember between two and a thousand tokens."""
    keys, values = KEY_HEADS * LINEAR_HEAD_DIM, VALUE_HEADS * LINEAR_HEAD_DIM
    mixed = 2 * keys + values
    return {
        "linear_attn.in_proj_qkv.weight": matrix(rng, mixed, HIDDEN),
        "linear_attn.in_proj_z.weight": matrix(rng, values, HIDDEN),
        "linear_attn.in_proj_b.weight": matrix(rng, VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_a.weight": matrix(rng, VALUE_HEADS, HIDDEN),
        "linear_attn.conv1d.weight": matrix(rng, mixed, CONV_WIDTH)[:, None, :],
        "linear_attn.dt_bias": np.zeros(VALUE_HEADS, dtype=np.float32),
        # Decay rates: memory of about a thousand tokens in the first head, of two in the last.
        "linear_attn.A_log": np.log(np.geomspace(0.001, 0.5, VALUE_HEADS)).astype(np.float32),
        "linear_attn.norm.weight": np.ones(LINEAR_HEAD_DIM, dtype=np.float32),
        "linear_attn.out_proj.weight": matrix(rng, HIDDEN, values, MIXING),
    }


def matrix(rng: np.random.Generator, rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
    """A random map that turns inputs of root mean square 1 into outputs of root mean square ``gain``."""
    return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(gain / np.sqrt(columns))


def offset(size: int) -> NDArray[np.float32]:
    """The weight of a Qwen3.5 norm, which scales by one plus this."""
    return np.zeros(size, dtype=np.float32)
