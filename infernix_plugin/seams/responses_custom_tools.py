"""The Responses API's request: custom tools may have a grammar."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    model = original.__self__

    @functools.wraps(original.__func__)
    def check_custom_tool_format(cls: Any, data: Any) -> Any:
        return data  # what cannot be enforced is refused with its place, when the model is known

    replacement = MethodType(check_custom_tool_format, model)
    # pydantic took the method when the class was made, and has to take the new one.
    model.__pydantic_decorators__.model_validators["check_custom_tool_format"].func = replacement
    model.model_rebuild(force=True)
    return replacement


SEAM = Seam(
    module="vllm.entrypoints.openai.responses.protocol",
    attribute="ResponsesRequest.check_custom_tool_format",
    reason="vLLM refuses every custom tool with a grammar; here the grammar of calls holds it.",
    replace=_replace,
    parameters=("data",),
)
