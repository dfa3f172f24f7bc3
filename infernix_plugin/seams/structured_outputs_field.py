"""The requests of Chat, Completions and Responses: what ``structured_outputs`` holds is read strictly."""

from __future__ import annotations

from typing import Any

from infernix_plugin.seams.seam import Seam
from infernix_plugin.seams.validators import replaced

_REASON = "vLLM ignores a key that it does not know, and answers a wrong value with a dump of its own model."


def _replace(original: Any) -> Any:
    def strictly(data: Any) -> Any:
        from infernix_plugin.entrypoints.structured_outputs import check_field

        return original(check_field(data))

    return replaced(original, strictly)


CHAT = Seam(
    module="vllm.entrypoints.openai.chat_completion.protocol",
    attribute="ChatCompletionRequest.check_structured_outputs_count",
    reason=_REASON,
    replace=_replace,
    parameters=("data",),
)

COMPLETION = Seam(
    module="vllm.entrypoints.openai.completion.protocol",
    attribute="CompletionRequest.check_structured_outputs_count",
    reason=_REASON,
    replace=_replace,
    parameters=("data",),
)

RESPONSES = Seam(
    module="vllm.entrypoints.openai.responses.protocol",
    attribute="ResponsesRequest.validate_background",
    reason=_REASON + " Nothing of Responses looks at the field; this validator looks at the whole request.",
    replace=_replace,
    parameters=("data",),
)
