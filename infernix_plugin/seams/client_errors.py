"""What a client did wrong is told to the client: vLLM would write it to the log, constraint, traceback and all."""

from __future__ import annotations

import functools
import logging
from typing import Any

from infernix_plugin.errors import InfernixError
from infernix_plugin.seams.seam import Seam

_MESSAGES = "vllm.entrypoints.anthropic.serving"
_REASON = "Its router logs every exception as an ERROR with its text, which of a refusal may quote the constraint."
_SERVER_FAULTS = 500
"""From this HTTP status on, the server is to blame, and the log should say for what."""


def keep_failures_out_of_the_log(module: str) -> None:
    """Drop what ``module`` logs of our own failures when they end a stream; the engine core has logged each by name."""
    logging.getLogger(module).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    failed = record.exc_info[1] if record.exc_info else None
    if failed is None:
        return True
    told = isinstance(failed, InfernixError) or hasattr(failed, "error_info")  # by the chat that a message is made of
    return not told and not isinstance(failed.__cause__, InfernixError)


def _replace(original: Any) -> Any:
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

    @functools.wraps(original)
    async def answer(self: Any, request: Any, raw_request: Any = None) -> Any:
        try:
            return await original(self, request, raw_request)
        except Exception as error:
            response = create_error_response(error)
            if response.error.code >= _SERVER_FAULTS and not isinstance(error.__cause__, InfernixError):
                raise
            return response

    return answer


CREATE = Seam(
    module=_MESSAGES,
    attribute="AnthropicServingMessages.create_messages",
    reason=_REASON,
    replace=_replace,
    parameters=("self", "request", "raw_request"),
)

COUNT = Seam(
    module=_MESSAGES,
    attribute="AnthropicServingMessages.count_tokens",
    reason=_REASON,
    replace=_replace,
    parameters=("self", "request", "raw_request"),
)
