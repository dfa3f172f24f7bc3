"""The engine's configuration: read our settings before a model is loaded, and say that the plugin is active."""

from __future__ import annotations

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infernix_plugin.entrypoints import speculative_config
from infernix_plugin.entrypoints.model_name import require_path
from infernix_plugin.errors import CheckpointError, EndsCommandLine, InfernixError, SettingsError
from infernix_plugin.model_executor import combinations
from infernix_plugin.model_executor.cpu_kernels import refusal
from infernix_plugin.model_executor.weights.configuration import merged, require_entries
from infernix_plugin.model_executor.weights.inspection import read_config
from infernix_plugin.model_executor.weights.layout import check_entries
from infernix_plugin.model_executor.weights.start import require_checkpoints
from infernix_plugin.seams.seam import Seam

logger = logging.getLogger(__name__)


class SettingsRefused(EndsCommandLine, SettingsError):
    """What was set, or chosen, does not go."""


class CheckpointRefused(EndsCommandLine, CheckpointError):
    """A checkpoint is not there, or not whole."""


_FILES_OF_A_MODEL = ("auto", "hf", "mistral")
"""Values of vLLM's ``config_format`` that read a file of the model's directory."""

_TOKENIZERS_OF_A_MODEL = ("auto", "hf")
"""Values of vLLM's ``tokenizer_mode`` with which transformers makes the tokenizer."""

_DRAFTS_OF_NO_MODEL = ("ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class")
"""Methods whose ``model`` is no checkpoint: they have class names there, or words of their own."""

EXACT_METHODS = ("standard", "block")
"""vLLM's ways to verify drafts after which the output is distributed as without drafts."""


def _refuse_inexact(config: Any) -> None:
    """Refuse speculation under which no constraint, or not the right distribution, would hold."""
    speculation = config.speculative_config
    if speculation is None:
        return
    if speculation.rejection_sample_method not in EXACT_METHODS:
        problem = (
            f"rejection_sample_method {speculation.rejection_sample_method!r} accepts drafts that the target would "
            f"reject, so no constraint could hold; {' and '.join(map(repr, EXACT_METHODS))} are exact"
        )
    elif speculation.draft_sample_method != "greedy" and not (_on_cpu() or config.use_v2_model_runner):
        problem = (
            f"draft_sample_method {speculation.draft_sample_method!r} is not exact on vLLM's V1 model runner on a GPU, "
            "which can lose what a draft was sampled from; use 'greedy', or the V2 model runner"
        )
    else:
        return
    raise SettingsRefused(f"infernix-plugin: {problem}. INFERNIX_DISABLE=1 runs without the plugin.")


def _refuse_rust_frontend() -> None:
    """Refuse vLLM's front end in Rust: no plugin runs in it, so nobody would judge requests or take records out."""
    from vllm import envs

    if envs.VLLM_USE_RUST_FRONTEND:
        problem = "VLLM_USE_RUST_FRONTEND is set, and that front end runs no plugins: requests would not be judged"
        raise SettingsRefused(f"infernix-plugin: {problem}. INFERNIX_DISABLE=1 runs without the plugin.")


def _refuse_cpu_kernels(config: Any) -> None:
    """Refuse what vLLM's CPU kernels would refuse when the first prompt runs."""
    if config.model_config is None or not _on_cpu():
        return
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    problem = refusal(config.model_config.hf_text_config, dtype, str(config.cache_config.mamba_cache_dtype))
    if problem is not None:
        raise SettingsRefused(f"infernix-plugin: {problem}")


def _refuse_absent(arguments: Any) -> None:
    """Refuse a model, or a draft's model, that is no checkpoint, before vLLM looks for it in every other place."""
    speculation = _speculation(arguments)
    draft = speculation.get("model")
    try:
        if arguments.hf_config_path is None and arguments.config_format in _FILES_OF_A_MODEL:
            require_path(arguments.model)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: {error}") from None
    try:
        if isinstance(draft, str) and speculation.get("method") not in _DRAFTS_OF_NO_MODEL:
            require_path(draft)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: the draft is no checkpoint: {error}") from None


def _refuse_entries(arguments: Any) -> None:
    """Refuse a ``config.json`` that vLLM cannot read, which it would try twice and end with a traceback."""
    if arguments.config_format not in ("auto", "hf"):
        return
    try:
        _require_entries(arguments.hf_config_path or arguments.model, arguments.hf_overrides)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: {error}") from None
    draft = _speculation(arguments).get("model")
    try:
        if isinstance(draft, str):
            _require_entries(draft, None)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: the draft is no checkpoint: {error}") from None


def _require_entries(model: str, overrides: Any) -> None:
    from vllm.transformers_utils.config import get_config_parser

    folder = Path(model)
    if not (folder / "config.json").exists() or (folder / "params.json").exists():
        return

    def parse() -> None:
        get_config_parser("hf").parse(model, trust_remote_code=False, hf_overrides=overrides or None)

    require_entries(folder, overrides, parse)


def _refuse_without_vocabulary(arguments: Any) -> None:
    """Refuse a directory without a vocabulary, whose prompts would be empty."""
    from infernix_plugin.matching.pretrained import require_vocabulary

    folder = Path(arguments.tokenizer or arguments.model)
    if arguments.skip_tokenizer_init or arguments.tokenizer_mode not in _TOKENIZERS_OF_A_MODEL or not folder.is_dir():
        return
    try:
        require_vocabulary(folder)
    except CheckpointError as error:
        hint = "--tokenizer names the tokenizer of another directory, --skip-tokenizer-init goes without one"
        raise CheckpointRefused(f"infernix-plugin: {error}; {hint}") from None


def _refuse_incomplete(config: Any) -> None:
    """Refuse, before an engine runs, what :mod:`infernix_plugin.seams.checkpoint_check` would when it loads."""
    if not _on_cpu():
        return
    try:
        require_checkpoints(config)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: {error}") from None


def _refuse_speculation(arguments: Any) -> None:
    """Refuse keys that vLLM's speculation does not have."""
    from vllm.config import SpeculativeConfig

    if arguments.speculative_config is None:
        return
    known = [field.name for field in dataclasses.fields(SpeculativeConfig)]
    problem = speculative_config.refusal(arguments.speculative_config, known)
    if problem is not None:
        raise SettingsRefused(f"infernix-plugin: {problem}")


def _refuse_combinations(arguments: Any) -> None:
    """Refuse, before vLLM looks at anything, what a model of ours cannot be combined with on the CPU."""
    target = _configuration(arguments.model) if _on_cpu() else None
    if target is None:
        return
    try:
        check_entries(target)
    except CheckpointError as error:
        raise CheckpointRefused(f"infernix-plugin: {error}") from None
    if isinstance(arguments.hf_overrides, dict):
        target = merged(target, arguments.hf_overrides)
    speculation = _speculation(arguments)
    draft = speculation.get("model")
    length = arguments.max_model_len or target.get("text_config", target).get("max_position_embeddings")
    problem = combinations.refusal(
        target,
        combinations.Choices(
            speculation=speculation,
            draft=target if draft == arguments.model else _configuration(draft),
            max_model_len=length if isinstance(length, int) and length > 0 else None,
            model_impl=str(arguments.model_impl),
            load_format=str(arguments.load_format),
            quantization=arguments.quantization,
            enable_lora=bool(arguments.enable_lora),
            enable_prompt_embeds=bool(arguments.enable_prompt_embeds),
        ),
    )
    if problem is not None:
        raise SettingsRefused(f"infernix-plugin: {problem}")


def _speculation(arguments: Any) -> dict[str, Any]:
    """Return what was chosen for drafts, in either of vLLM's ways to say it; empty without drafts."""
    given = arguments.speculative_config
    single = {"method": arguments.spec_method, "model": arguments.spec_model}
    single["num_speculative_tokens"] = arguments.spec_tokens
    return {name: value for name, value in single.items() if value is not None} | (
        given if isinstance(given, dict) else {}
    )


def _configuration(model: Any) -> dict[str, Any] | None:
    """Return ``config.json`` of a checkpoint directory; of what is not there yet, or is no JSON, vLLM says enough."""
    try:
        return read_config(Path(model))
    except (InfernixError, OSError, TypeError):
        return None


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        from infernix_plugin import settings
        from infernix_plugin.seams.versions import installed_version

        try:
            own = settings.configure(self.additional_config)
        except SettingsError as error:
            raise SettingsRefused(f"infernix-plugin: {error}") from None
        _refuse_rust_frontend()
        _refuse_speculation(self)
        _refuse_absent(self)
        _refuse_without_vocabulary(self)
        _refuse_combinations(self)
        _refuse_entries(self)
        self.additional_config = settings.travelling(self.additional_config, own)
        logger.info("infernix-plugin is active (vLLM %s)", installed_version())
        try:
            config = original(self, *args, **kwargs)
        except ValidationError as error:
            problem = speculative_config.told(error)
            if problem is None:
                raise
            raise SettingsRefused(f"infernix-plugin: {problem}") from None
        _refuse_inexact(config)
        _refuse_cpu_kernels(config)
        _refuse_incomplete(config)
        backend = config.structured_outputs_config.backend
        if backend != "auto":
            logger.warning("The structured outputs backend %r has no effect: infernix-plugin replaces it", backend)
        return config

    return create_engine_config


SEAM = Seam(
    module="vllm.engine.arg_utils",
    attribute="EngineArgs.create_engine_config",
    reason="The first place in the API process that has additional_config; a mistake stops the start.",
    replace=_replace,
    parameters=("self", "usage_context", "headless"),
)
