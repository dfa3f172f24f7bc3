"""The text of every error response: some of vLLM's own quote the whole request, of any size."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.errors import bounded
from infernix_plugin.seams.seam import Seam

LONGEST_MESSAGE = 2000
"""Characters; the middle of a longer one is left out."""


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def create_error_response(*args: Any, **kwargs: Any) -> Any:
        response = original(*args, **kwargs)
        error = response.error
        error.message = bounded(error.message, LONGEST_MESSAGE)
        if error.param is not None:
            error.param = bounded(error.param)
        return response

    return create_error_response


SEAM = Seam(
    module="vllm.entrypoints.serve.exception_handling.error_response",
    attribute="create_error_response",
    reason="Two constraints, or a tool choice of no known kind, are answered with a copy of the whole value.",
    replace=_replace,
    parameters=("message", "err_type", "status_code", "param"),
)
