"""The checkpoints of an engine, judged when it is configured: nothing runs yet, and one line can say what is wrong.

The worker compares again what it loads, other layouts than these and files of the hub; what passes there passes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infernix_plugin.model_executor.weights.configuration import configuration_of
from infernix_plugin.model_executor.weights.inspection import require_parts
from infernix_plugin.model_executor.weights.layout import Part

_READS_SAFETENSORS = frozenset({"auto", "hf", "safetensors"})
"""Values of vLLM's ``load_format`` that read a directory's safetensors files if it has any."""

_RUNNERS = frozenset({"generate", "draft"})
"""What needs all of a model; pooling does without the head."""


def require_checkpoints(engine: Any) -> None:
    """Refuse local checkpoints, of the model and of its draft, that lack a tensor or have one that does not fit.

    Args:
        engine: vLLM's ``VllmConfig``, as it is configured on a CPU.

    Raises:
        CheckpointError: what is wrong, with names.
    """
    for model, load in _checkpoints(engine):
        folder = Path(model.model)
        if (
            model.quantization is None
            and model.runner_type in _RUNNERS
            and load.load_format in _READS_SAFETENSORS
            and folder.is_dir()
            and any(folder.glob("*.safetensors"))
        ):
            config = configuration_of(model, folder)
            if config is not None:
                require_parts(folder, _parts_of(model), config)


def _checkpoints(config: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the configurations of models that are loaded, each with that of its loader."""
    if config.model_config is None:
        return
    yield config.model_config, config.load_config
    draft = config.speculative_config and config.speculative_config.draft_model_config
    if draft is not None and draft.runner_type == "draft":  # of n-grams it is the target
        yield draft, config.speculative_config.draft_load_config or config.load_config


def _parts_of(model: Any) -> set[Part]:
    """Tell what of a checkpoint a model takes, by its configuration."""
    if any("MTP" in name for name in model.architectures):
        return {Part.MTP}
    parts = {Part.TEXT, Part.DRAFT}
    images = model.multimodal_config
    if images is not None and any(images.get_limit_per_prompt(kind) for kind in ("image", "video")):
        parts.add(Part.VISION)
    return parts
