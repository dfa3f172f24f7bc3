"""What a model of ours cannot be combined with on the CPU: drafts, loaders, adapters. Said before anything is loaded.

vLLM says some of it, late and in words of its own insides (a division by zero for a checkpoint without an MTP head),
and some of it not at all: a draft for another vocabulary, or of layers that the target does not have, loads, and the
engine dies at a prompt or drafts noise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infernix_plugin.model_executor.weights.layout import Config, family_of

_ANY_DRAFTER = frozenset({"mtp", "ngram", "dflash", "draft_model", "suffix", "custom_class"})

METHODS: Mapping[str, frozenset[str]] = {
    "qwen3.5": _ANY_DRAFTER,
    "qwen3.5-moe": _ANY_DRAFTER,
    "flash-next": frozenset({"mtp", "ngram"}),
}
"""Family of a target -> the methods of its drafts on the CPU."""

_ADVICE = {
    "dflash2": "DFlash2 drafts have the method 'dflash' too; the draft's config.json says which they are",
    "ngram_gpu": "on a CPU the method is 'ngram'",
}

_DRAFTS = ("dflash", "dflash2")


@dataclass(frozen=True)
class Choices:
    """What the user chose, by vLLM's names of the options; ``draft`` is the configuration of the draft's checkpoint."""

    speculation: Mapping[str, Any] | None = None
    draft: Config | None = None
    max_model_len: int | None = None
    model_impl: str = "auto"
    load_format: str = "auto"
    quantization: str | None = None
    enable_lora: bool = False
    enable_prompt_embeds: bool = False


def refusal(target: Config, choices: Choices) -> str | None:
    """Say why a target does not run so on the CPU, and what does; ``None`` if nothing speaks against it.

    Args:
        target: ``config.json`` of the target; other families than ours pass.
        choices: the options.
    """
    family = family_of(target)
    if family is None or family not in METHODS:
        return None
    text = _text(target)
    reasons = [*_flash_next(choices)] if family == "flash-next" else []
    if choices.model_impl == "transformers":
        reasons.append(f"{family} runs as vLLM's own model only; leave out --model-impl")
    if choices.speculation:
        reasons += _speculation(family, text, choices, choices.speculation)
    return reasons[0] if reasons else None


def _flash_next(choices: Choices) -> Iterator[str]:
    name = "Flash-Next on the CPU"
    if choices.load_format not in ("auto", "hf", "safetensors"):
        yield (
            f"{name} maps its n-gram table out of safetensors files, which load_format {choices.load_format!r} does "
            "not read; use 'auto'"
        )
    if choices.quantization is not None:
        yield f"{name} runs in bfloat16, without quantization {choices.quantization!r}"
    if choices.enable_lora:
        yield f"{name} has no LoRA adapters; leave out --enable-lora"
    if choices.enable_prompt_embeds:
        yield f"{name} reads token ids in its n-gram layers, and prompts of embeddings have none"


def _speculation(family: str, text: Config, choices: Choices, speculation: Mapping[str, Any]) -> Iterator[str]:
    method, draft = speculation.get("method"), choices.draft
    own = isinstance(method, str) and (method == "mtp" or method.endswith("_mtp"))
    if method is not None and not own and method not in METHODS[family]:
        advice = f"; {_ADVICE[method]}" if method in _ADVICE else ""
        yield f"there are no drafts of method {method!r} for {family} on the CPU{advice}. {_listed(METHODS[family])}"
    if own and not speculation.get("model") and not text.get("mtp_num_hidden_layers"):
        others = _listed(METHODS[family] - {"mtp"})
        yield f"the checkpoint has no MTP head (mtp_num_hidden_layers in config.json). {others} without one"
    if method == "dflash" and not speculation.get("model"):
        yield "the method 'dflash' needs a draft's checkpoint: \"model\" of the speculative config"
    count, length = speculation.get("num_speculative_tokens"), choices.max_model_len
    if isinstance(count, int) and length and count >= length:
        yield f"num_speculative_tokens is {count}, and a text has {length} tokens at most (max_model_len)"
    if draft is None:
        return
    kind = family_of(draft)
    if own and kind not in (family, *_DRAFTS):
        yield f"the MTP head of {kind or draft.get('architectures')} does not draft for {family}"
    if method in (None, "draft_model") and kind in _DRAFTS and "dflash" not in str(speculation.get("model")).lower():
        yield "the draft is a DFlash draft: its method is 'dflash'"  # vLLM goes by the name of the directory
    if method == "dflash" and kind not in _DRAFTS:
        yield f"the draft is no DFlash draft: its architecture is {draft.get('architectures')}"
    if kind is not None:
        yield from _fit(text, _text(draft))


def _listed(methods: Collection[str]) -> str:
    return f"Its methods are {', '.join(map(repr, sorted(methods)))}"


def _fit(target: Config, draft: Config) -> Iterator[str]:
    """Say what of a draft is not of its target. A draft uses the target's embedding, head and hidden states."""
    for entry in ("vocab_size", "hidden_size"):
        ours, theirs = draft.get(entry), target.get(entry)
        if ours != theirs:
            yield f"the draft is not one of this target: {entry} is {ours}, the target's {theirs}"
    details, layers, vocabulary = draft.get("dflash_config"), target.get("num_hidden_layers"), target.get("vocab_size")
    if not isinstance(details, dict):
        return
    read = details.get("target_layer_ids")
    wrong = [layer for layer in read if not _below(layer, layers)] if isinstance(read, list) else []
    if wrong:
        yield f"the draft reads layers {wrong} of the target (target_layer_ids), which has {layers}, from 0"
    mask, candidates = details.get("mask_token_id", 0), details.get("selector_top_k", 1)
    if not _below(mask, vocabulary):
        yield f"the draft's mask_token_id {mask} is none of the target's {vocabulary} tokens"
    if not (_below(candidates, vocabulary) and candidates):
        yield f"the draft's selector_top_k {candidates} is not a number of the target's {vocabulary} tokens"


def _below(value: Any, bound: Any) -> bool:
    return type(value) is int and type(bound) is int and 0 <= value < bound


def _text(config: Config) -> Config:
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config
