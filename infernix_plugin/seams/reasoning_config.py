"""vLLM's settings of thinking budgets: a model with Qwen's tokens has them without a flag."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.framing.phases import THINK_CLOSE, THINK_OPEN
from infernix_plugin.seams.seam import Seam


def _replace_defaults(original: Any) -> Any:
    @functools.wraps(original)
    def _set_default_reasoning_config_args(self: Any) -> None:
        original(self)
        if self.reasoning_config is None:
            from vllm.config.reasoning import ReasoningConfig

            self.reasoning_config = ReasoningConfig()

    return _set_default_reasoning_config_args


DEFAULTS = Seam(
    module="vllm.engine.arg_utils",
    attribute="EngineArgs._set_default_reasoning_config_args",
    reason="Without --reasoning-parser vLLM refuses thinking_token_budget, and we read reasoning without that flag.",
    replace=_replace_defaults,
    parameters=("self",),
)


def _replace_token_ids(original: Any) -> Any:
    @functools.wraps(original)
    def initialize_token_ids(self: Any, model_config: Any) -> None:
        original(self, model_config)
        if self.enabled or model_config.skip_tokenizer_init:
            return
        from vllm.tokenizers import cached_tokenizer_from_config

        known = cached_tokenizer_from_config(model_config=model_config).get_vocab()
        if THINK_OPEN in known and THINK_CLOSE in known:
            self.reasoning_start_str = self.reasoning_start_str or THINK_OPEN
            self.reasoning_end_str = self.reasoning_end_str or THINK_CLOSE
            original(self, model_config)

    return initialize_token_ids


TOKEN_IDS = Seam(
    module="vllm.config.reasoning",
    attribute="ReasoningConfig.initialize_token_ids",
    reason="The tokens around the reasoning are known from the vocabulary.",
    replace=_replace_token_ids,
    parameters=("self", "model_config"),
)
