"""The Messages API: a last message of the assistant is continued, as that API says, and not closed."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def to_chat_completion_request(*args: Any, **kwargs: Any) -> Any:
        request = original(*args, **kwargs)
        last = request.messages[-1] if request.messages else {}
        if last.get("role") == "assistant" and last.get("content") and not last.get("tool_calls"):
            request.add_generation_prompt = False
            request.continue_final_message = True
        return request

    return staticmethod(to_chat_completion_request)


SEAM = Seam(
    module="vllm.entrypoints.anthropic.serving",
    attribute="AnthropicServingMessages.to_chat_completion_request",
    reason="vLLM closes the message and begins another one.",
    replace=_replace,
    parameters=("anthropic_request", "merge_inline_system", "disabled_thinking_effort"),
)
