"""The Qwen3.8-Flash-Next text family: several residual streams, sparse attention, n-gram embeddings, experts, MTP.

Three gated-delta-net layers to one sparse-attention layer, n-gram features on the second layer, experts everywhere.
Every stream starts as the token's embedding and the final mixer halves their mean, so that the output head of the
shared word statistics, doubled, reads them as in the other families.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infernix_plugin.model_executor.models.flash_next.ngram_hash import head_primes, table_rows
from infernix_plugin.model_executor.tiny.associations import Associations, output_head
from infernix_plugin.model_executor.tiny.experts import Experts
from infernix_plugin.model_executor.tiny.qwen3_5 import (
    ATTENTION_HEADS,
    CONV_WIDTH,
    HEAD_DIM,
    HIDDEN,
    KEY_HEADS,
    KV_HEADS,
    LINEAR_HEAD_DIM,
    MIXING,
    VALUE_HEADS,
    Tensors,
    attention,
    embeddings,
    gated_delta_net,
    layer_type_of,
    matrix,
    offset,
)

LAYERS = 8
STREAMS, STREAM_RANK = 2, 32
EXPERTS = Experts()

INDEX_HEADS, INDEX_DIM = 4, 64
BUDGET, POOLED = 32, 4
"""A query sees at most this many tokens, in blocks of so many, and the open block. Small: short prompts exceed it."""

NGRAM_LAYERS = (2,)
"""Counted from one, as in ``config.json``."""
NGRAM_SIZE, NGRAM_HEADS, NGRAM_BASE = 3, 4, 500
NGRAM_DIVISOR, NGRAM_SHARDS = 128, 4
NGRAM_CONV_WIDTH = 4

CALM = 0.4
"""Share of what a block adds in the other family. There are twice as many layers here, and both experts and sparse
attention jump when their inputs move a little: with more, the rounding of bfloat16 decides what the model says."""


def config(vocab_size: int, ids: dict[str, int]) -> dict[str, Any]:
    """Return ``config.json``; ``ids`` maps control tokens to their ids."""
    return {
        "architectures": ["Qwen4ExpForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": ids["<|im_end|>"],
        "hc_count": STREAMS,
        "hc_lowrank": STREAM_RANK,
        "head_dim": HEAD_DIM,
        "heads_per_ngram": NGRAM_HEADS,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "indexer_budget": BUDGET,
        "indexer_compress_ratio": POOLED,
        "indexer_head_dim": INDEX_DIM,
        "indexer_kv_heads": 1,
        "indexer_n_heads": INDEX_HEADS,
        "initializer_range": 0.02,
        "layer_types": [layer_type_of(index) for index in range(LAYERS)],
        "linear_conv_kernel_dim": CONV_WIDTH,
        "linear_key_head_dim": LINEAR_HEAD_DIM,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_value_head_dim": LINEAR_HEAD_DIM,
        "make_ngram_vocab_size_divisible_by": NGRAM_DIVISOR,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 32_768,
        "model_type": "qwen4_exp_text",
        "mtp_num_hidden_layers": 1,
        "ngram_size": NGRAM_SIZE,
        "ngram_vocab_size_base": NGRAM_BASE,
        "norm_topk_prob": True,
        "num_attention_heads": ATTENTION_HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "output_gate_type": "sigmoid",
        "pad_token_id": ids["<|endoftext|>"],
        "partial_rotary_factor": 0.25,
        "ple_conv_kernel_size": NGRAM_CONV_WIDTH,
        "ple_embed_dim": HIDDEN,
        "ple_layer_ids": list(NGRAM_LAYERS),
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10_000_000,
            "rope_type": "default",
        },
        "seed": 1234,
        "split_ngram_parts": NGRAM_SHARDS,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocab_size,
        **EXPERTS.config(),
    }


def tensors(table: Associations, vocab_size: int, seed: int) -> Tensors:
    """Return every weight by its checkpoint name, float32, rows beyond the tokenizer included."""
    rng = np.random.default_rng(seed)
    embedding = embeddings(rng, vocab_size)
    weights: Tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": 2 * output_head(table, embedding)}
    for index in range(LAYERS):
        weights |= _layer(rng, f"model.layers.{index}.", layer_type_of(index))
    for index, layer in enumerate(NGRAM_LAYERS):
        weights |= _ngrams(rng, f"model.layers.{layer - 1}.ple.", index)
    weights |= _mixer(rng, "model.hyper_connection_mixer.", final=True)
    # As in the other family, the MTP layer keeps the next token's embedding and mixes in a little of what was before.
    weights |= {
        "mtp.fc_embedding.weight": np.eye(HIDDEN, dtype=np.float32),
        "mtp.fc_hidden.weight": matrix(rng, HIDDEN, HIDDEN, MIXING / 2),
        "mtp.pre_fc_norm_embedding.weight": offset(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": offset(STREAMS * HIDDEN),
        **_layer(rng, "mtp.layers.0.", "full_attention"),
        **_mixer(rng, "mtp.hyper_connection_mixer.", final=True),
    }
    return weights


def _layer(rng: np.random.Generator, prefix: str, layer_type: str) -> Tensors:
    parts = attention(rng) | _indexer(rng) if layer_type == "full_attention" else gated_delta_net(rng)
    parts |= EXPERTS.tensors(rng)
    for name in parts:
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
            parts[name] *= np.float32(CALM)
    parts |= _mixer(rng, "attn_hyper_connection.") | _mixer(rng, "mlp_hyper_connection.")
    return {prefix + name: value for name, value in parts.items()}


def _mixer(rng: np.random.Generator, prefix: str, *, final: bool = False) -> Tensors:
    """What merges the streams into a block's input, and (unless ``final``) decides how its output is spread."""
    wide = STREAMS * HIDDEN
    parts = {
        "hc_norm.weight": offset(wide),
        "input_mix_weight_down.weight": matrix(rng, STREAM_RANK, wide, STREAMS),
        "input_mix_weight_up.weight": matrix(rng, wide, STREAM_RANK, 0.5),
    }
    if not final:
        parts["block_inject_weight.weight"] = matrix(rng, STREAMS, wide, STREAMS)
    return {prefix + name: value for name, value in parts.items()}


def _indexer(rng: np.random.Generator) -> Tensors:
    """What chooses the blocks a query sees."""
    return {
        "self_attn.indexer.index_qk_proj.weight": matrix(rng, (INDEX_HEADS + 1) * INDEX_DIM, HIDDEN),
        "self_attn.indexer.q_layernorm.weight": offset(INDEX_DIM),
        "self_attn.indexer.k_layernorm.weight": offset(INDEX_DIM),
    }


def _ngrams(rng: np.random.Generator, prefix: str, index: int) -> Tensors:
    """The hashed n-gram table in its shards, and the layer that adds its rows to the streams."""
    heads = (NGRAM_SIZE - 1) * NGRAM_HEADS
    rows = table_rows(head_primes(heads, NGRAM_BASE, index), NGRAM_DIVISOR)
    table = rng.standard_normal((rows, HIDDEN // heads), dtype=np.float32)
    wide = STREAMS * HIDDEN
    parts = {
        f"ple_embedding.ngram_embedding.shard_{number}.weight": part
        for number, part in enumerate(np.split(table, NGRAM_SHARDS))
    }
    parts |= {
        "key_proj.weight": matrix(rng, wide, HIDDEN),
        "value_proj.weight": matrix(rng, HIDDEN, HIDDEN, MIXING),
        "norm_key.weight": offset(wide),
        "norm_query.weight": offset(wide),
        "norm_conv.weight": offset(wide),
        "conv1d.weight": matrix(rng, wide, NGRAM_CONV_WIDTH, 2 * MIXING)[:, None, :],
    }
    return {prefix + name: value for name, value in parts.items()}
