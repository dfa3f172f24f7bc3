"""Tensors of Qwen3.8-Flash-Next: text, MTP layer, and the vision tower of multimodal checkpoints, which is not run.

Layers are Qwen3.5's, with the index of sparse attention and without norms of their own: the mixers of the residual
streams norm. Parameters are those of this package's model for the CPU; vLLM's for GPUs stacks a few more.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from infernix_plugin.model_executor.models.flash_next.ngram_hash import head_primes, table_rows
from infernix_plugin.model_executor.weights.layout import Config, Part, Slot
from infernix_plugin.model_executor.weights.qwen3_5 import (
    NESTED,
    Names,
    attention,
    experts,
    gated_delta_net,
    vision,
)

_KINDS = {"full_attention", "indexed_attention", "qwen_sparse_attention", "linear_attention"}


def text(config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a text-only checkpoint."""
    nested = f"{NESTED}embed_tokens.weight" in names
    yield from _text(config, names, NESTED if nested else "model.")


def multimodal(config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a checkpoint with text and vision."""
    yield from _text(config["text_config"], names, NESTED)
    if "model.visual.pos_embed.weight" in names:
        yield from vision(config["vision_config"])


def _text(config: Config, names: Container[str], prefix: str) -> Iterator[Slot]:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    kinds = config["layer_types"]
    if len(kinds) != config["num_hidden_layers"] or set(kinds) - _KINDS:
        raise ValueError("layer_types does not name num_hidden_layers layers of linear or sparse attention")
    main = Names(Part.TEXT, prefix, "model.")
    yield main.slot("embed_tokens.weight", (vocabulary, hidden))
    tied = bool(config.get("tie_word_embeddings", False))
    yield Slot("lm_head.weight", (vocabulary, hidden), Part.TEXT, "lm_head.weight", optional=tied)
    with_ngrams = {layer - 1: index for index, layer in enumerate(sorted(config.get("ple_layer_ids") or []))}
    for index, kind in enumerate(kinds):
        at = main.below(f"layers.{index}.")
        yield from _layer(at, kind, config, names)
        if index in with_ngrams:
            yield from _ngrams(at.below("ple."), config, with_ngrams[index], names)
    yield from _mixer(main.below("hyper_connection_mixer."), config, final=True)
    if config.get("mtp_num_hidden_layers"):
        yield from _mtp(Names(Part.MTP, "mtp.", "model."), config, names)


def _mtp(at: Names, config: Config, names: Container[str]) -> Iterator[Slot]:
    hidden, wide = config["hidden_size"], config["hc_count"] * config["hidden_size"]
    yield at.slot("fc_embedding.weight", (hidden, hidden))
    yield at.slot("fc_hidden.weight", (hidden, hidden))
    yield at.slot("pre_fc_norm_embedding.weight", (hidden,))
    yield at.slot("pre_fc_norm_hidden.weight", (wide,))
    for index in range(config["mtp_num_hidden_layers"]):
        yield from _layer(at.below(f"layers.{index}."), "indexed_attention", config, names)
    yield from _mixer(at.below("hyper_connection_mixer."), config, final=True)


def _layer(at: Names, kind: str, config: Config, names: Container[str]) -> Iterator[Slot]:
    if kind == "linear_attention":
        yield from gated_delta_net(at, config)
    else:
        yield from attention(at, {**config, "attn_output_gate": True})
        heads, width = config["indexer_n_heads"], config["indexer_head_dim"]
        index = at.below("self_attn.indexer.")
        yield index.slot("index_qk_proj.weight", ((heads + 1) * width, config["hidden_size"]))
        yield index.slot("q_layernorm.weight", (width,))
        yield index.slot("k_layernorm.weight", (width,))
    yield from experts(at.below("mlp."), config, names)
    yield from _mixer(at.below("attn_hyper_connection."), config)
    yield from _mixer(at.below("mlp_hyper_connection."), config)


def _mixer(at: Names, config: Config, *, final: bool = False) -> Iterator[Slot]:
    streams, rank = config["hc_count"], config["hc_lowrank"]
    wide = streams * config["hidden_size"]
    yield at.slot("hc_norm.weight", (wide,))
    yield at.slot("input_mix_weight_down.weight", (rank, wide))
    yield at.slot("input_mix_weight_up.weight", (wide, rank))
    if not final:
        yield at.slot("block_inject_weight.weight", (streams, wide))


def _ngrams(at: Names, config: Config, index: int, names: Container[str]) -> Iterator[Slot]:
    hidden, wide = config["hidden_size"], config["hc_count"] * config["hidden_size"]
    features, heads = config.get("ple_embed_dim") or hidden, (config["ngram_size"] - 1) * config["heads_per_ngram"]
    if features % heads:
        raise ValueError(f"{heads} heads of n-grams do not share {features} features equally")
    primes = head_primes(heads, config["ngram_vocab_size_base"], index)
    rows = table_rows(primes, config["make_ngram_vocab_size_divisible_by"])
    table = at.below("ple_embedding.ngram_embedding.")
    if f"{table.prefix}weight" in names:
        yield table.slot("weight", (rows, features // heads))
    else:
        shards = config["split_ngram_parts"]
        for number in range(shards):
            part = -(-rows // shards)
            part = min(part, rows - number * part)
            yield table.slot(f"shard_{number}.weight", (part, features // heads), "weight", f"rows of shard {number}")
    derived = {"layer_multipliers": config["ngram_size"], "ngram_heads_vocab_sizes": heads}
    for name, count in (derived | {"ngram_heads_offsets": heads}).items():
        slot = at.below("ple_embedding.").slot(name, (count,))
        yield replace(slot, optional=True, integers=True)
    yield at.slot("key_proj.weight", (wide, features))
    yield at.slot("value_proj.weight", (hidden, features))
    for name in ("norm_key.weight", "norm_query.weight", "norm_conv.weight"):
        yield at.slot(name, (wide,))
    yield at.slot("conv1d.weight", (wide, 1, config["ple_conv_kernel_size"]))
