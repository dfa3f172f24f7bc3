"""The Messages API: a last message of the assistant is continued, as that API says, and errors name its own fields."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def to_chat_completion_request(*args: Any, **kwargs: Any) -> Any:
        from infernix_plugin.entrypoints.origin import Origin, mark_origin

        request = original(*args, **kwargs)
        generated = hasattr(args[0], "max_tokens")
        mark_origin(request, Origin.MESSAGES if generated else Origin.COUNT_TOKENS)
        last = request.messages[-1] if request.messages else {}
        if last.get("role") == "assistant" and last.get("content") and not last.get("tool_calls"):
            request.add_generation_prompt = False
            request.continue_final_message = True
        return request

    return staticmethod(to_chat_completion_request)


SEAM = Seam(
    module="vllm.entrypoints.anthropic.serving",
    attribute="AnthropicServingMessages.to_chat_completion_request",
    reason="vLLM closes the message and begins another one, and keeps no trace of the API that was asked.",
    replace=_replace,
    parameters=("anthropic_request", "merge_inline_system", "disabled_thinking_effort"),
)
