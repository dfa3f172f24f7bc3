"""Tensors of Qwen3.5, dense and MoE: text, MTP layers, and the vision tower of ``ForConditionalGeneration``.

Text-only checkpoints name their layers ``model.layers``; multimodal ones, and text-only ones that were cut out of
them, ``model.language_model.layers``. Experts come stacked, as released, or one by one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from infernix_plugin.model_executor.weights.layout import MOST_TENSORS, Config, Part, Slot

Shape = tuple[int, ...]

NESTED = "model.language_model."


def text(config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a text-only checkpoint."""
    nested = f"{NESTED}embed_tokens.weight" in names
    yield from _text(config, names, NESTED if nested else "model.", "model.")


def multimodal(config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a checkpoint with text and vision."""
    yield from _text(config["text_config"], names, NESTED, "language_model.model.", "language_model.")
    yield from vision(config["vision_config"])


def _text(config: Config, names: Container[str], prefix: str, into: str, head: str = "") -> Iterator[Slot]:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    main = Names(Part.TEXT, prefix, into)
    yield main.slot("embed_tokens.weight", (vocabulary, hidden))
    tied = bool(config.get("tie_word_embeddings", False))
    yield Slot("lm_head.weight", (vocabulary, hidden), Part.TEXT, f"{head}lm_head.weight", optional=tied)
    yield main.slot("norm.weight", (hidden,))
    for index, kind in enumerate(layer_types(config)):
        yield from _layer(main.below(f"layers.{index}."), kind, config, names)

    layers = config.get("mtp_num_hidden_layers") or 0
    if not layers:
        return
    mtp = Names(Part.MTP, "mtp.", "model.")
    yield mtp.slot("fc.weight", (hidden, 2 * hidden))
    for name in ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight"):
        yield mtp.slot(name, (hidden,))
    if config.get("mtp_use_dedicated_embeddings"):
        yield mtp.slot("embed_tokens.weight", (vocabulary, hidden))
    for index in range(layers):
        yield from _layer(mtp.below(f"layers.{index}."), "full_attention", config, names)


@dataclass(frozen=True)
class Names:
    """A place in the checkpoint (``prefix``) and the same place in vLLM's model (``into``)."""

    part: Part
    prefix: str
    into: str

    def below(self, path: str) -> Names:
        """Return the place ``path`` below this one."""
        return Names(self.part, self.prefix + path, self.into + path)

    def slot(self, name: str, shape: Shape, stacked: str = "", shard: str = "") -> Slot:
        """A tensor; ``stacked`` is the name of the parameter that it is a piece of."""
        return Slot(self.prefix + name, shape, self.part, self.into + (stacked or name), shard)


def layer_types(config: Config) -> list[str]:
    """Return the kind of every layer."""
    layers, interval = config["num_hidden_layers"], config.get("full_attention_interval", 4)
    if layers > MOST_TENSORS:
        raise ValueError(f"num_hidden_layers is {layers}")
    kinds = config.get("layer_types") or [
        "linear_attention" if (index + 1) % interval else "full_attention" for index in range(layers)
    ]
    if len(kinds) != layers or set(kinds) - {"linear_attention", "full_attention"}:
        raise ValueError("layer_types does not name num_hidden_layers layers of linear or full attention")
    return list(kinds)


def _layer(at: Names, kind: str, config: Config, names: Container[str]) -> Iterator[Slot]:
    hidden = config["hidden_size"]
    yield at.slot("input_layernorm.weight", (hidden,))
    yield at.slot("post_attention_layernorm.weight", (hidden,))
    yield from attention(at, config) if kind == "full_attention" else gated_delta_net(at, config)
    yield from (
        experts(at.below("mlp."), config, names)
        if "num_experts" in config
        else _mlp(at.below("mlp."), hidden, config["intermediate_size"])
    )


def attention(at: Names, config: Config) -> Iterator[Slot]:
    """Slots of full attention."""
    hidden, heads, kv_heads = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    width = config.get("head_dim") or hidden // heads
    rows = {"q": heads * width * (2 if config.get("attn_output_gate", True) else 1)}
    rows |= {"k": kv_heads * width, "v": kv_heads * width}
    at = at.below("self_attn.")
    for shard, size in rows.items():
        yield at.slot(f"{shard}_proj.weight", (size, hidden), "qkv_proj.weight", shard)
        if config.get("attention_bias"):
            yield at.slot(f"{shard}_proj.bias", (size,), "qkv_proj.bias", shard)
    yield at.slot("o_proj.weight", (hidden, heads * width))
    if config.get("attention_bias"):
        yield at.slot("o_proj.bias", (hidden,))
    yield at.slot("q_norm.weight", (width,))
    yield at.slot("k_norm.weight", (width,))


def gated_delta_net(at: Names, config: Config) -> Iterator[Slot]:
    """Slots of linear attention."""
    hidden, heads, width = (config[name] for name in ("hidden_size", "linear_num_value_heads", "linear_value_head_dim"))
    keys, values = config["linear_num_key_heads"] * config["linear_key_head_dim"], heads * width
    at = at.below("linear_attn.")
    yield at.slot("in_proj_qkv.weight", (2 * keys + values, hidden), "in_proj_qkvz.weight", "q, k, v")
    yield at.slot("in_proj_z.weight", (values, hidden), "in_proj_qkvz.weight", "z")
    yield at.slot("in_proj_b.weight", (heads, hidden), "in_proj_ba.weight", "b")
    yield at.slot("in_proj_a.weight", (heads, hidden), "in_proj_ba.weight", "a")
    yield at.slot("conv1d.weight", (2 * keys + values, 1, config["linear_conv_kernel_dim"]))
    yield at.slot("dt_bias", (heads,))
    yield at.slot("A_log", (heads,))
    yield at.slot("norm.weight", (width,))
    yield at.slot("out_proj.weight", (hidden, values))


def _mlp(at: Names, hidden: int, width: int) -> Iterator[Slot]:
    yield at.slot("gate_proj.weight", (width, hidden), "gate_up_proj.weight", "gate")
    yield at.slot("up_proj.weight", (width, hidden), "gate_up_proj.weight", "up")
    yield at.slot("down_proj.weight", (hidden, width))


def experts(at: Names, config: Config, names: Container[str]) -> Iterator[Slot]:
    """Slots of a block of experts, below ``mlp``."""
    hidden, count, width = (config[name] for name in ("hidden_size", "num_experts", "moe_intermediate_size"))
    yield at.slot("gate.weight", (count, hidden))
    gate_up, down = "experts.routed_experts.w13_weight", "experts.routed_experts.w2_weight"
    if f"{at.prefix}experts.0.gate_proj.weight" in names:
        for expert in range(count):
            one = f"experts.{expert}."
            yield at.slot(f"{one}gate_proj.weight", (width, hidden), gate_up, f"gate of expert {expert}")
            yield at.slot(f"{one}up_proj.weight", (width, hidden), gate_up, f"up of expert {expert}")
            yield at.slot(f"{one}down_proj.weight", (hidden, width), down, f"expert {expert}")
    else:
        yield at.slot("experts.gate_up_proj", (count, 2 * width, hidden), gate_up)
        yield at.slot("experts.down_proj", (count, hidden, width), down)
    yield from _mlp(at.below("shared_expert."), hidden, config["shared_expert_intermediate_size"])
    yield at.slot("shared_expert_gate.weight", (1, hidden))


def vision(config: Config) -> Iterator[Slot]:
    """Slots of the vision tower."""
    hidden, width, patch = (config[name] for name in ("hidden_size", "intermediate_size", "patch_size"))
    at = Names(Part.VISION, "model.visual.", "visual.")
    yield from _affine(
        at, "patch_embed.proj", (hidden, config["in_channels"], config["temporal_patch_size"], patch, patch)
    )
    yield at.slot("pos_embed.weight", (config["num_position_embeddings"], hidden))
    for index in range(config["depth"]):
        block = at.below(f"blocks.{index}.")
        yield from _affine(block, "norm1", (hidden,))
        yield from _affine(block, "norm2", (hidden,))
        yield from _affine(block, "attn.qkv", (3 * hidden, hidden))
        yield from _affine(block, "attn.proj", (hidden, hidden))
        yield from _affine(block, "mlp.linear_fc1", (width, hidden))
        yield from _affine(block, "mlp.linear_fc2", (hidden, width))
    merged = hidden * config["spatial_merge_size"] ** 2
    yield from _affine(at, "merger.norm", (hidden,))
    yield from _affine(at, "merger.linear_fc1", (merged, merged))
    yield from _affine(at, "merger.linear_fc2", (config["out_hidden_size"], merged))


def _affine(at: Names, name: str, shape: Shape) -> Iterator[Slot]:
    yield at.slot(f"{name}.weight", shape)
    yield at.slot(f"{name}.bias", shape[:1])
