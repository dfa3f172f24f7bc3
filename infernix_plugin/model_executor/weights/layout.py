"""The table of families: which tensors a checkpoint of an architecture has, and where vLLM puts each."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from infernix_plugin.errors import CheckpointError, bounded

Config = Mapping[str, Any]
"""A ``config.json``."""

MOST_TENSORS = 200_000
"""More than any checkpoint has: a configuration that asks for more is wrong, and is not followed to the end."""


SIZES = frozenset({
    "hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "full_attention_interval", "mtp_num_hidden_layers",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size",
    "depth", "patch_size", "in_channels", "temporal_patch_size", "num_position_embeddings", "spatial_merge_size",
    "out_hidden_size",
    "hc_count", "hc_lowrank", "indexer_n_heads", "indexer_head_dim", "ple_embed_dim", "ple_conv_kernel_size",
    "ngram_size", "heads_per_ngram", "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by", "split_ngram_parts",
    "selector_rank", "conv_kernel_size", "conv_group_size",
})  # fmt: skip
"""Entries of a configuration, or of an object in it, that are whole numbers wherever they are."""
LISTS = frozenset({"layer_types", "target_layer_ids", "ple_layer_ids"})
"""Entries that are lists."""
PARTS = ("text_config", "vision_config", "dflash_config")
"""Objects in a configuration."""

_FLOATS = frozenset({"BF16", "F16", "F32", "F64"})
_INTEGERS = frozenset({"I64", "I32"})


class Part(StrEnum):
    """What a tensor belongs to. Parts are loaded apart: MTP and drafts by the drafter, vision where images are on."""

    TEXT = "text"
    MTP = "mtp"
    VISION = "vision"
    DRAFT = "draft"


@dataclass(frozen=True)
class Slot:
    """One tensor that a checkpoint must have (may have, if ``optional``).

    ``into`` is vLLM's parameter, below the model of its part; ``shard`` which piece of a stacked one, as in ``q`` of
    ``qkv_proj``, empty if the tensor is the whole parameter. ``integers``: it holds none of the model's weights, which
    are floating-point numbers of any type that converts to the model's.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    into: str
    shard: str = ""
    optional: bool = False
    integers: bool = False

    def takes(self, dtype: str) -> bool:
        """Tell whether numbers of a type, by the format's name, are converted to the parameter's without nonsense."""
        return dtype in (_INTEGERS if self.integers else _FLOATS)


Layout = Callable[[Config, Container[str]], Iterable[Slot]]
"""Slots for a configuration. Where a family has more than one layout, the names that are there decide which it is."""


def _layouts() -> dict[str, tuple[str, Layout]]:
    from infernix_plugin.model_executor.weights import dflash, flash_next, qwen3_5

    return {
        "Qwen3_5ForCausalLM": ("qwen3.5", qwen3_5.text),
        "Qwen3_5MoeForCausalLM": ("qwen3.5-moe", qwen3_5.text),
        "Qwen3_5ForConditionalGeneration": ("qwen3.5", qwen3_5.multimodal),
        "Qwen3_5MoeForConditionalGeneration": ("qwen3.5-moe", qwen3_5.multimodal),
        "Qwen4ExpForCausalLM": ("flash-next", flash_next.text),
        "Qwen4ExpForConditionalGeneration": ("flash-next", flash_next.multimodal),
        "DFlashDraftModel": ("dflash", dflash.draft),
        "DFlash2DraftModel": ("dflash2", dflash.draft),
    }


def family_of(config: Config) -> str | None:
    """Return the family of a configuration's architecture, ``None`` if the table does not have it."""
    known = _layouts().get(_architecture(config))
    return known[0] if known else None


def slots_of(config: Config, names: Container[str]) -> list[Slot]:
    """Return the slots of a checkpoint.

    Args:
        config: its ``config.json``.
        names: of the tensors that it has.

    Raises:
        CheckpointError: the architecture is not in the table, or the configuration lacks an entry.
    """
    known = _layouts().get(_architecture(config))
    if known is None:
        raise CheckpointError(
            f"the architecture {_architecture(config) or 'of config.json'} is not in the table; "
            f"known: {', '.join(_layouts())}"
        )
    check_entries(config)
    try:
        slots = list(islice(known[1](config, names), MOST_TENSORS + 1))
        if len(slots) > MOST_TENSORS:
            raise ValueError(f"it would have more than {MOST_TENSORS:,} tensors")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"no entry {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"config.json does not describe a {known[0]} model: {reason}") from None
    return slots


def check_entries(config: Config) -> None:
    """Refuse a configuration of a family with an entry with which nothing can be counted. Absent ones pass.

    Raises:
        CheckpointError: names the entry.
    """
    wrong = next(_wrong_entries(config), None) if family_of(config) is not None else None
    if wrong is not None:
        raise CheckpointError(f"config.json does not describe a {family_of(config)} model: {wrong}")


def _wrong_entries(config: Config) -> Iterator[str]:
    for name, value in config.items():
        if value is None:
            continue
        if name in SIZES and (type(value) is not int or value < 0):
            yield f"{name} is {bounded(repr(value))} and should be a whole number"
        elif name in LISTS and not isinstance(value, list):
            yield f"{name} is {bounded(repr(value))} and should be a list"
        elif name in PARTS and not isinstance(value, Mapping):
            yield f"{name} is {bounded(repr(value))} and should be an object"
        elif name in PARTS:
            yield from _wrong_entries(value)


def _architecture(config: Config) -> str:
    architectures = config.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else ""
