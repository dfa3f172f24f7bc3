"""The ``config.json`` by which vLLM builds a model: where it is, and what the options of the engine change in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infernix_plugin.model_executor.weights.inspection import read_config
from infernix_plugin.model_executor.weights.layout import Config


def configuration_of(model: Any, folder: Path) -> Config | None:
    """Return what ``config.json`` says once ``hf_config_path`` and ``hf_overrides`` are applied.

    Args:
        model: vLLM's ``ModelConfig``.
        folder: where the files of the checkpoint are.

    Returns:
        ``None`` if only vLLM knows: a function changes it, it is on the hub, or it has another format.

    Raises:
        CheckpointError: it is no JSON object.
    """
    folder = Path(model.hf_config_path or folder)
    if not (folder / "config.json").exists():
        return None
    overrides = model.hf_overrides
    if not callable(overrides):
        return merged(read_config(folder), overrides or {})
    from vllm.config.speculative import SpeculativeConfig

    # Of each draft's checkpoint vLLM itself changes the name of the architecture, and no size.
    return read_config(folder) if overrides == SpeculativeConfig.hf_config_override else None


def merged(config: Config, overrides: Config) -> dict[str, Any]:
    """Return a configuration with ``hf_overrides``, which reach into its objects."""
    changed = dict(config)
    for name, value in overrides.items():
        inner = changed.get(name)
        changed[name] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return changed
