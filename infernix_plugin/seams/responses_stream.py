"""The Responses API's event stream: end it with an error event where vLLM would cut the connection."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

from infernix_plugin.errors import InfernixError
from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    async def responses_stream_generator(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        from openai.types.responses import ResponseErrorEvent
        from vllm.exceptions import VLLMError

        events = 0
        try:
            async for event in original(self, *args, **kwargs):
                events += 1
                yield event
        except VLLMError as failed:
            if not isinstance(failed.__cause__, InfernixError):
                raise
            error = self.create_error_response(failed).error
            yield ResponseErrorEvent(
                type="error", code=str(error.code), message=error.message, param=error.param, sequence_number=events
            )

    return responses_stream_generator


SEAM = Seam(
    module="vllm.entrypoints.openai.responses.serving",
    attribute="OpenAIServingResponses.responses_stream_generator",
    reason="Its stream knows only vLLM's own generation errors; a client should read why its request failed.",
    replace=_replace,
    parameters=(
        "self",
        "request",
        "sampling_params",
        "result_generator",
        "context",
        "model_name",
        "tokenizer",
        "request_metadata",
        "created_time",
    ),
)
