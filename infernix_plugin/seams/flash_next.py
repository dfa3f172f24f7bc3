"""Flash-Next on the CPU: our model in place of vLLM's, whose kernels need a GPU, and what it takes from its loader."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from infernix_plugin.seams.seam import Seam, on_cpu

_PACKAGE = "infernix_plugin.model_executor.models.flash_next"

MODELS = {
    "Qwen4ExpForCausalLM": f"{_PACKAGE}.model:Qwen4ExpForCausalLM",
    "Qwen4ExpForConditionalGeneration": f"{_PACKAGE}.model:Qwen4ExpForConditionalGeneration",
    "Qwen4ExpMTP": f"{_PACKAGE}.mtp:Qwen4ExpMTP",
}
"""Architecture of a checkpoint -> its model, imported when a checkpoint asks for it."""


@dataclass(frozen=True)
class Registration(Seam):
    """Enters models in vLLM's registry by its own method, which replaces entries and no attribute."""

    def applied(self, module: ModuleType) -> bool:
        """Tell whether the registry has our models."""
        entries = module.ModelRegistry.models
        return all(getattr(entries.get(name), "module_name", "").startswith(_PACKAGE) for name in MODELS)

    def apply(self, module: ModuleType) -> None:
        """Enter the models, on the CPU only.

        Raises:
            UnsupportedVllmError: see ``Seam.check``.
        """
        from vllm.platforms import current_platform

        if current_platform.is_cpu() and not self.applied(module):
            self.check(module)
            for name, model in MODELS.items():
                module.ModelRegistry.register_model(name, model)


def _replace_skip(original: Any) -> Any:
    from infernix_plugin.model_executor.models.flash_next.ngram_table import is_shard

    @functools.wraps(original)
    def should_skip_weight(weight_name: str, local_expert_ids: Any) -> bool:
        return is_shard(weight_name) or original(weight_name, local_expert_ids)

    return should_skip_weight


def _replace_uncompiled(original: Any) -> Any:
    @functools.wraps(original)
    def default_breakable_cudagraph_architectures() -> frozenset[str]:
        from vllm.platforms import current_platform

        uncompiled: frozenset[str] = original()
        return uncompiled - MODELS.keys() if current_platform.is_cpu() else uncompiled

    return default_breakable_cudagraph_architectures


def widen_feedback(proposer: Any, draft: Any) -> None:
    """Give a proposer room for all streams of a token: what an MTP layer of Flash-Next reads and hands back."""
    if "Qwen4ExpMTP" not in draft.architectures:
        return
    width = draft.hf_text_config.hc_count * draft.hf_text_config.hidden_size
    if proposer.hidden_size != width:
        proposer.hidden_size = width
        proposer.hidden_states = proposer.hidden_states.new_zeros(len(proposer.hidden_states), width)


REGISTRATION = Registration(
    module="vllm.model_executor.models.registry",
    attribute="_ModelRegistry.register_model",
    reason="vLLM's Flash-Next runs on CUDA and ROCm only; on the CPU it ends at pinned memory for the n-gram table.",
    replace=lambda original: original,
    parameters=("self", "model_arch", "model_cls"),
)

UNREAD_TABLE = Seam(
    module="vllm.model_executor.model_loader.weight_utils",
    attribute="should_skip_weight",
    reason="The n-gram table, 95 GiB in the released model, is mapped out of its files; the loader would read it all.",
    replace=on_cpu(_replace_skip),
    parameters=("weight_name", "local_expert_ids"),
)

COMPILED = Seam(
    module="vllm.config.vllm",
    attribute="default_breakable_cudagraph_architectures",
    reason="For CUDA graphs with breaks, vLLM compiles no model of these names, here as little as there.",
    replace=_replace_uncompiled,
    parameters=(),
)
