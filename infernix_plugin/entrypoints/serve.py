"""``infernix serve``: ``vllm serve`` with the defaults that a checkpoint and a machine suggest."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence

from infernix_plugin.entrypoints import early_settings
from infernix_plugin.entrypoints.model_name import require_model

DRAFTS = 3
"""Drafts of a model's own MTP head; more are rejected too often to pay."""


def command_line(model: str, options: Sequence[str]) -> list[str]:
    """Return the arguments behind ``vllm``: what the user gave, and defaults for what was not said.

    A checkpoint with an MTP head drafts with it.
    """
    defaults: list[str] = []
    if not _says(options, "speculative-config", "sc") and _has_mtp(_config(model)):
        defaults = ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": DRAFTS})]
    return ["serve", model, *options, *defaults]


def run(model: str, options: Sequence[str]) -> None:
    """Become ``vllm serve``. Does not return.

    Raises:
        EngineError: there is no vllm command.
        SettingsError: a setting is wrong.
        CheckpointError: there is no such model.
    """
    from infernix_plugin.entrypoints.demo.server import vllm_command

    command = vllm_command()
    early_settings.judge(options)
    if not _says(options, "download-dir", "hf-config-path"):
        require_model(model)
    arguments = command_line(model, options)
    print(f"infernix: vllm {shlex.join(arguments)}", file=sys.stderr, flush=True)
    os.execv(command, [command, *arguments])


def _says(options: Sequence[str], *names: str) -> bool:
    flags = {prefix + name for name in names for prefix in ("--", "--no-", "-")}
    return any(option.partition("=")[0].replace("_", "-") in flags for option in options)


def _config(model: str) -> dict[str, object]:
    """The model's configuration, its text part on top; empty if there is none, which vLLM will say better."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(model)
    except (OSError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _has_mtp(config: dict[str, object]) -> bool:
    layers = config.get("mtp_num_hidden_layers")
    return isinstance(layers, int) and layers > 0
