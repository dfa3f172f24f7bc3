"""``infernix serve``: ``vllm serve`` with the defaults that a checkpoint and a machine suggest."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence

DRAFTS = 3
"""Drafts of a model's own MTP head; more are rejected too often to pay."""


def command_line(model: str, options: Sequence[str], *, on_cpu: bool) -> list[str]:
    """Return the arguments behind ``vllm``: what the user gave, and defaults for what was not said.

    - A checkpoint with an MTP head drafts with it.
    - On a CPU, a hybrid model cannot speculate and cache prefixes at once (vLLM's copy kernel is for GPUs).
    """
    defaults: list[str] = []
    config = _config(model)
    speculating = _says(options, "speculative-config", "sc")
    if not speculating and _has_mtp(config):
        speculating = True
        defaults += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": DRAFTS})]
    if on_cpu and speculating and _is_hybrid(config) and not _says(options, "enable-prefix-caching"):
        defaults.append("--no-enable-prefix-caching")
    return ["serve", model, *options, *defaults]


def run(model: str, options: Sequence[str]) -> None:
    """Become ``vllm serve``. Does not return.

    Raises:
        EngineError: there is no vllm command.
    """
    from vllm.platforms import current_platform

    from infernix_plugin.entrypoints.demo.server import vllm_command

    command = vllm_command()
    arguments = command_line(model, options, on_cpu=bool(current_platform.is_cpu()))
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


def _is_hybrid(config: dict[str, object]) -> bool:
    kinds = config.get("layer_types")
    return isinstance(kinds, list) and len(set(kinds)) > 1
