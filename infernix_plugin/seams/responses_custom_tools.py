"""The Responses API's request: custom tools may have a grammar."""

from __future__ import annotations

from typing import Any

from infernix_plugin.seams.seam import Seam
from infernix_plugin.seams.validators import replaced


def _replace(original: Any) -> Any:
    return replaced(original, lambda data: data)  # what cannot be enforced is refused with its place, knowing the model


SEAM = Seam(
    module="vllm.entrypoints.openai.responses.protocol",
    attribute="ResponsesRequest.check_custom_tool_format",
    reason="vLLM refuses every custom tool with a grammar; here the grammar of calls holds it.",
    replace=_replace,
    parameters=("data",),
)
