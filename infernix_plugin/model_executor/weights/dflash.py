"""Tensors of DFlash and DFlash2 drafts. Embedding and head are the target's, so they are not among them."""

from __future__ import annotations

from collections.abc import Container, Iterator

from infernix_plugin.model_executor.weights.layout import Config, Part, Slot


def draft(config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a draft; DFlash2 has a convolution around each block and a candidate selector."""
    hidden, details = config["hidden_size"], config["dflash_config"]
    yield _slot("fc.weight", (hidden, len(details["target_layer_ids"]) * hidden))
    yield _slot("hidden_norm.weight", (hidden,))
    yield _slot("norm.weight", (hidden,))
    for index in range(config["num_hidden_layers"]):
        yield from _layer(f"layers.{index}.", config)
    if "selector_rank" in details:
        rank = details["selector_rank"]
        for codebook in ("predecessor_codebook", "successor_codebook"):
            yield _slot(f"candidate_selector.{codebook}", (config["vocab_size"], rank))
        yield _slot("candidate_selector.hidden_projection.weight", (rank, hidden))


def _layer(prefix: str, config: Config) -> Iterator[Slot]:
    hidden, heads, width = (config[name] for name in ("hidden_size", "num_attention_heads", "head_dim"))
    details, inner = config["dflash_config"], config["intermediate_size"]
    narrow = config["num_key_value_heads"] * width
    for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
        yield _slot(f"{prefix}{name}.weight", shape)
    for shard, rows in {"q": heads * width, "k": narrow, "v": narrow}.items():
        yield _slot(f"{prefix}self_attn.{shard}_proj.weight", (rows, hidden), "qkv_proj", shard)
    yield _slot(f"{prefix}self_attn.o_proj.weight", (hidden, heads * width))
    yield _slot(f"{prefix}self_attn.q_norm.weight", (width,))
    yield _slot(f"{prefix}self_attn.k_norm.weight", (width,))
    for shard in ("gate", "up"):
        yield _slot(f"{prefix}mlp.{shard}_proj.weight", (inner, hidden), "gate_up_proj", shard)
    yield _slot(f"{prefix}mlp.down_proj.weight", (hidden, inner))
    if "conv_kernel_size" in details:
        taps, groups = details["conv_kernel_size"], hidden // details["conv_group_size"]
        for block in ("attention_conv", "mlp_conv"):
            yield _slot(f"{prefix}{block}.base_kernel", (2, taps, hidden))
            yield _slot(f"{prefix}{block}.kernel_projection.weight", (2 * taps * groups, hidden))


def _slot(name: str, shape: tuple[int, ...], stacked: str = "", shard: str = "") -> Slot:
    into = name.replace(f"{shard}_proj", stacked) if stacked else name
    return Slot(name, shape, Part.DRAFT, f"model.{into}", shard)
