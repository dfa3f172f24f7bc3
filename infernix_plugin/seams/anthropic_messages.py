"""The Messages API: every constraint arrives, a last message of the assistant is continued, errors name its fields."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def to_chat_completion_request(*args: Any, **kwargs: Any) -> Any:
        from infernix_plugin.entrypoints.messages import carry_over
        from infernix_plugin.entrypoints.origin import Origin, mark_origin

        request = original(*args, **kwargs)
        generated = hasattr(args[0], "max_tokens")
        mark_origin(request, Origin.MESSAGES if generated else Origin.COUNT_TOKENS)
        if generated:
            carry_over(args[0], request)
        last = request.messages[-1] if request.messages else {}
        if last.get("role") == "assistant" and last.get("content") and not last.get("tool_calls"):
            request.add_generation_prompt = False
            request.continue_final_message = True
        return request

    return staticmethod(to_chat_completion_request)


def _keep_extra_fields(original: Any) -> Any:
    from pydantic import ConfigDict, model_validator

    class AnthropicMessagesRequest(original):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _check_fields(cls, data: Any) -> Any:
            from infernix_plugin.entrypoints.structured_outputs import check_messages_fields

            return check_messages_fields(data)

    AnthropicMessagesRequest.__module__, AnthropicMessagesRequest.__doc__ = original.__module__, original.__doc__
    AnthropicMessagesRequest.__qualname__ = original.__qualname__
    return AnthropicMessagesRequest


REQUEST = Seam(
    module="vllm.entrypoints.anthropic.protocol",
    attribute="AnthropicMessagesRequest",
    reason="It drops fields that it does not know, structured_outputs and guided_* among them, without a word.",
    replace=_keep_extra_fields,
    parameters=(
        "model",
        "messages",
        "max_tokens",
        "metadata",
        "output_config",
        "thinking",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "mm_payload",
        "return_mm_kwargs",
        "cache_salt",
        "watermarking",
        "kv_transfer_params",
        "ec_transfer_params",
        "vllm_xargs",
        "chat_template_kwargs",
    ),
)

CONVERSION = Seam(
    module="vllm.entrypoints.anthropic.serving",
    attribute="AnthropicServingMessages.to_chat_completion_request",
    reason="vLLM closes the message and begins another one, drops constraints, and keeps no trace of the API.",
    replace=_replace,
    parameters=("anthropic_request", "merge_inline_system", "disabled_thinking_effort"),
)
