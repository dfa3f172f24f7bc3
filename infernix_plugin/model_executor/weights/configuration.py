"""The ``config.json`` by which vLLM builds a model: where it is, what it can hold, and what options change in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infernix_plugin.errors import CheckpointError, bounded, excerpt
from infernix_plugin.model_executor.weights.inspection import read_config
from infernix_plugin.model_executor.weights.layout import Config

_NUMERIC = re.compile(
    r"(n|num|max|min)_\w+|depth|theta|factor|eps"
    r"|\w+_(size|dim|rank|eps|theta|factor|layers|heads|experts|embeddings|interval|token_id)"
)
"""Names of entries that are numbers in every model that has them, or lists of numbers."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")

_FREE_PARTS = ("quantization_config", "compression_config")
"""Objects whose entries the methods of quantisation read, each as it likes."""


def require_entries(folder: Path, overrides: Any, parse: Callable[[], object]) -> None:
    """Refuse a ``config.json`` with an entry that its model's configuration cannot have, such as text for a number.

    Args:
        folder: where it is.
        overrides: the engine's ``hf_overrides``.
        parse: makes vLLM's configuration of the file. What it raises for other reasons is vLLM's to say.

    Raises:
        CheckpointError: names the entry and what it is.
    """
    from huggingface_hub.errors import StrictDataclassError

    stated = read_config(folder)
    config = merged(stated, overrides) if isinstance(overrides, Mapping) else stated
    wrong = next(_wrong_entries(config), None)
    if wrong is None and "auto_map" not in stated:  # whose code is for vLLM to run
        try:
            parse()
        except StrictDataclassError as error:
            wrong = _reason(error)
        except Exception:
            return
    if wrong is not None:
        raise CheckpointError(f"config.json of {excerpt(folder.name)} has a wrong entry: {wrong}")


def _wrong_entries(config: Config) -> Iterator[str]:
    if isinstance(config.get("architectures"), str):
        yield f"architectures is {excerpt(config['architectures'])}, and should be a list of names"
    yield from _texts_for_numbers(config, "")


def _texts_for_numbers(config: Config, path: str) -> Iterator[str]:
    for name, value in config.items():
        if isinstance(value, Mapping) and name not in _FREE_PARTS:
            yield from _texts_for_numbers(value, f"{path}{name}.")
        elif isinstance(value, str) and _NUMERIC.fullmatch(name) and _NUMBER.fullmatch(value.strip()):
            yield f"{bounded(path + name)} is {excerpt(value)}, which is text, and should be a number"


def _reason(error: Exception) -> str:
    """The sentence about the entry, without the list of all types that were tried."""
    said = str(error.__cause__ or error).partition(". Errors: ")[0]
    return bounded(re.sub(r"<class '(\w+)'>", r"\1", " ".join(said.split())), 400)


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
