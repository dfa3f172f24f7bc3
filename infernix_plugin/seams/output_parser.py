"""vLLM's parsers of outputs: ours for Qwen's form, and calls are read without a flag."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace_get_parser(original: Any) -> Any:
    @functools.wraps(original)
    def get_parser(
        tool_parser_name: str | None = None, reasoning_parser_name: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        from infernix_plugin.entrypoints import validation
        from infernix_plugin.entrypoints.tools.output_parser import OutputParser, is_read_here

        tokenizer = kwargs.get("tokenizer")
        if tokenizer is not None and is_read_here(tokenizer, tool_parser_name, reasoning_parser_name):
            return OutputParser
        if reasoning_parser_name:
            validation.delegate_reading()
        return original(tool_parser_name, reasoning_parser_name, *args, **kwargs)

    return staticmethod(get_parser)


GET_PARSER = Seam(
    module="vllm.parser.parser_manager",
    attribute="ParserManager.get_parser",
    reason="What the grammar wrote has to be read by the contract that the grammar was made of.",
    replace=_replace_get_parser,
    parameters=(
        "tool_parser_name",
        "reasoning_parser_name",
        "enable_auto_tools",
        "model_name",
        "is_harmony",
        "tool_strict_level",
        "tokenizer",
    ),
)


def _replace_chat(original: Any) -> Any:
    @functools.wraps(original)
    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        from infernix_plugin.entrypoints import validation
        from infernix_plugin.entrypoints.tools.output_parser import OutputParser

        validation.start_warming(self.model_config, self.renderer.tokenizer)
        if self.parser_cls is OutputParser:
            self.enable_auto_tools = True

    return constructor


CHAT = Seam(
    module="vllm.entrypoints.openai.chat_completion.serving",
    attribute="OpenAIServingChat.__init__",
    reason="Without --enable-auto-tool-choice vLLM drops the calls of an aggregate; and here a server begins.",
    replace=_replace_chat,
    parameters=(
        "self",
        "engine_client",
        "models",
        "response_role",
        "online_renderer",
        "request_logger",
        "chat_template",
        "chat_template_content_format",
        "trust_request_chat_template",
        "return_tokens_as_token_ids",
        "reasoning_parser",
        "enable_auto_tools",
        "exclude_tools_when_tool_choice_none",
        "tool_parser",
        "tool_strict_level",
        "enable_prompt_tokens_details",
        "enable_force_include_usage",
        "enable_log_outputs",
        "enable_log_deltas",
        "default_chat_template_kwargs",
        "enable_per_request_metrics",
    ),
)
