"""The Chat API's request: ``tool_choice`` may list the tools that are allowed."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    model = original.__self__

    @functools.wraps(original.__func__)
    def check_tool_usage(cls: Any, data: Any) -> Any:
        from infernix_plugin.entrypoints.tools.allowed import without_allowed_tools

        return original(without_allowed_tools(data))

    replacement = MethodType(check_tool_usage, model)
    # pydantic took the method when the class was made, and has to take the new one.
    model.__pydantic_decorators__.model_validators["check_tool_usage"].func = replacement
    model.model_rebuild(force=True)
    return replacement


SEAM = Seam(
    module="vllm.entrypoints.openai.chat_completion.protocol",
    attribute="ChatCompletionRequest.check_tool_usage",
    reason="vLLM knows the type allowed_tools in Responses, but takes it for a named function in Chat.",
    replace=_replace,
    parameters=("data",),
)
