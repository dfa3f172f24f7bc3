"""A checkpoint that does not hold what its model needs is refused before it is loaded.

Reason: vLLM notices a tensor that it has no place for, but of the missing ones only few: those of linear layers and
experts are exempt, and a piece of a stacked parameter (``k_proj`` of ``qkv_proj``) counts as the whole. What is missing
stays uninitialised memory, and the model answers with noise or NaN.

Fits: vLLM 0.32 and 0.33, CPU platform, safetensors, architectures of the table in ``model_executor/weights``. Elsewhere
layouts are used that the table has not seen (quantised, expert parallel), so the check stays out of the way there;
``infernix inspect-checkpoint`` asks the same question for any of them. Worker process.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from infernix_plugin.model_executor.weights.configuration import configuration_of
from infernix_plugin.model_executor.weights.inspection import require_parts
from infernix_plugin.model_executor.weights.layout import Part
from infernix_plugin.seams.seam import Seam, on_cpu


def _parts_of(model: Any) -> set[Part]:
    """Tell what of a checkpoint vLLM's model takes, by its own parameters."""
    if "MTP" in type(model).__name__:
        return {Part.MTP}
    sees = any(name.startswith("visual.") for name, _ in model.named_parameters())
    return {Part.TEXT, Part.DRAFT} | ({Part.VISION} if sees else set())


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def load_weights(self: Any, model: Any, model_config: Any) -> None:
        folder, _, safetensors, _ = self._prepare_weights(
            model_config.model,
            None,
            model_config.revision,
            getattr(model, "fall_back_to_pt_during_load", True),
            getattr(model, "allow_patterns_overrides", None),
        )
        config = configuration_of(model_config, Path(folder))
        if safetensors and model_config.quantization is None and config is not None:
            require_parts(Path(folder), _parts_of(model), config)
        original(self, model, model_config)

    return load_weights


SEAM = Seam(
    module="vllm.model_executor.model_loader.default_loader",
    attribute="DefaultModelLoader.load_weights",
    reason="Most tensors that a checkpoint lacks go unnoticed, and the model computes with uninitialised memory.",
    replace=on_cpu(_replace),
    parameters=("self", "model", "model_config"),
)
