"""The requests of Chat, Completions and Responses: constraints and response formats are read strictly."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam
from infernix_plugin.seams.validators import replaced

_REASON = "vLLM ignores a key that it does not know, and answers a wrong value with a dump of its own models."


def _replace(original: Any) -> Any:
    def strictly(data: Any) -> Any:
        from infernix_plugin.entrypoints.structured_outputs import check_field

        return original(check_field(data))

    return replaced(original, strictly)


def _replace_tag(original: Any) -> Any:
    @functools.wraps(original)
    def validate_structural_tag_payload(payload: Any, *, parameter: str) -> None:
        from infernix_plugin.entrypoints.structured_outputs import check_tag

        check_tag(functools.partial(original, parameter=parameter), payload, parameter)

    return validate_structural_tag_payload


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

BATCH = Seam(
    module="vllm.entrypoints.openai.chat_completion.protocol",
    attribute="BatchChatCompletionRequest.check_batch_mode",
    reason=_REASON + " A batch reads its chats only one by one, later.",
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

TAG = Seam(
    module="vllm.entrypoints.generate.base.protocol",
    attribute="validate_structural_tag_payload",
    reason="It says that a structural tag is wrong, and neither where nor why; it refuses schemas that are "
    "enforced here, and tokens by name, which need the vocabulary.",
    replace=_replace_tag,
    parameters=("payload", "parameter"),
)
