"""Every family as a tiny checkpoint: the target, the same weights for transformers, and drafts that fit it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from infernix_plugin.model_executor.tiny import make_tiny_draft, make_tiny_model, noise
from infernix_plugin.model_executor.weights.headers import INDEX

MULTIMODAL = "qwen3.5, text half"
FAMILIES = ("qwen3.5", "qwen3.5-moe", MULTIMODAL, "flash-next")

QUIET = 8
"""The logits of families with experts are divided by this. Where two experts tie, or two blocks of sparse attention,
bfloat16 takes the other one. So transformers' own bfloat16 differs from its float32 by 0.013 (MoE) and 0.010
(Flash-Next) in the mean, and by 0.005 without experts, and a best token's logit by 0.4 at most, not by 0.02; undivided.
"""

VISION = {
    "depth": 1, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96, "out_hidden_size": 256, "in_channels": 3,
    "num_position_embeddings": 64, "patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2,
    "hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.02, "deepstack_visual_indexes": [],
}  # fmt: skip


@dataclass(frozen=True)
class Bounds:
    """What depends on how far logits are apart.

    ``tie``: logits that are nearer are equal in bfloat16. ``far``: bound on each difference of a log-probability.
    """

    tie: float = 0.06
    far: float = 0.25


@dataclass(frozen=True)
class Checkpoint:
    """One family.

    ``reference``: the directory that transformers loads, a text model. ``options``: what every engine of it is started
    with. ``drafts``: directories of draft models by kind.
    """

    family: str
    model: Path
    reference: Path
    drafts: Mapping[str, Path]
    options: Mapping[str, Any] = field(default_factory=dict)
    bounds: Bounds = Bounds()


def make_checkpoint(family: str, folder: Path, *, drafts: bool = True) -> Checkpoint:
    """Write the tiny checkpoint of a family, and its drafts, below ``folder``."""
    text = folder / "text"
    base = "qwen3.5" if family == MULTIMODAL else family
    make_tiny_model(text, family=base)  # type: ignore[arg-type]
    model, options, bounds = text, {}, Bounds()
    if family in ("qwen3.5-moe", "flash-next"):
        divide_head(text, QUIET)
        bounds = Bounds(tie=1 / 64, far=0.1)
    if family == MULTIMODAL:
        model, options = folder / "multimodal", {"language_model_only": True}
        make_multimodal(text, model)
    found = {}
    for kind in ("dflash", "dflash2") if drafts else ():
        found[kind] = folder / kind
        make_tiny_draft(found[kind], kind)  # type: ignore[arg-type]
    return Checkpoint(family, model, text, found, options, bounds)


def divide_head(folder: Path, divisor: int) -> None:
    """Divide the output head by a power of two: the same tokens are best, and logits are nearer to each other."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] /= divisor
    save_file(tensors, path, metadata={"format": "pt"})


def make_multimodal(text: Path, folder: Path) -> None:
    """Write the weights of a text model as part of a multimodal checkpoint in two files, beside a vision tower."""
    shutil.copytree(text, folder, dirs_exist_ok=True)
    inner = json.loads((text / "config.json").read_text())
    inner["rope_parameters"] |= {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
    kind = inner["model_type"].removesuffix("_text")
    config = {
        "architectures": [inner.pop("architectures")[0].replace("ForCausalLM", "ForConditionalGeneration")],
        "model_type": kind,
        "dtype": "bfloat16",
        "text_config": inner,
        "vision_config": VISION | {"model_type": f"{kind}_vision"},
        "tie_word_embeddings": False,
        **{f"{name}_token_id": i for i, name in enumerate(("image", "video", "vision_start", "vision_end"), 2050)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(text / "model.safetensors")
    for name in [name for name in weights if name.startswith("model.")]:
        weights[name.replace("model.", "model.language_model.", 1)] = weights.pop(name)
    for name, value in noise.tensors(config, seed=2).items():
        if name.startswith("model.visual."):
            weights[name] = torch.from_numpy(value).to(torch.bfloat16)
    (folder / "model.safetensors").unlink()
    mapped = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(mapped.values()):
        save_file({name: weights[name] for name in mapped if mapped[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": mapped}))
