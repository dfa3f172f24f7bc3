"""The Chat API's request: ``tool_choice`` may list the tools that are allowed."""

from __future__ import annotations

from typing import Any

from infernix_plugin.seams.seam import Seam
from infernix_plugin.seams.validators import replaced


def _replace(original: Any) -> Any:
    def without_allowed(data: Any) -> Any:
        from infernix_plugin.entrypoints.tools.allowed import without_allowed_tools

        return original(without_allowed_tools(data))

    return replaced(original, without_allowed)


SEAM = Seam(
    module="vllm.entrypoints.openai.chat_completion.protocol",
    attribute="ChatCompletionRequest.check_tool_usage",
    reason="vLLM knows the type allowed_tools in Responses, but takes it for a named function in Chat.",
    replace=_replace,
    parameters=("data",),
)
