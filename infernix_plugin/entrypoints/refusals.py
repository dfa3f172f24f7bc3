"""Our errors as the exceptions that vLLM's servers turn into HTTP responses."""

from __future__ import annotations

import re
from http import HTTPStatus

from vllm.exceptions import GracefulHTTPError, VLLMError, VLLMUnprocessableEntityError, VLLMValidationError

from infernix_plugin.errors import (
    ConflictingConstraints,
    ConstraintDeadEnd,
    ConstraintError,
    InfernixError,
    NonFiniteLogits,
    bounded,
)
from infernix_plugin.observation.metrics import metrics

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$-]*")


class ConstraintRefused(VLLMValidationError):  # type: ignore[misc]
    """HTTP 400. ``parameter`` becomes the ``param`` of the response; the message stands alone without it."""

    def __str__(self) -> str:
        return str(self.args[0])


class ConstraintFailed(VLLMUnprocessableEntityError):  # type: ignore[misc]
    """HTTP 422: the constraint was valid, and this model could not go on with it."""

    def __str__(self) -> str:
        return str(self.args[0])


def refusal(error: ConstraintError, field: str) -> VLLMValidationError:
    """Return the HTTP 400 for a constraint that came in the request field ``field``, and count it."""
    metrics().count_refusal(error)
    source = "" if isinstance(error, ConflictingConstraints) or not field else f"{field}: "
    refused = ConstraintRefused(source + _message(error), parameter=_parameter(error) or field or None)
    refused.__cause__ = error
    return refused


def failure(error: InfernixError) -> VLLMError:
    """Return what a client sees when a running constrained request fails in the engine core."""
    if isinstance(error, NonFiniteLogits):  # the model's or the server's fault, whatever the constraint
        failed: VLLMError = GracefulHTTPError(_message(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    elif isinstance(error, ConstraintDeadEnd):
        failed = ConstraintFailed(_message(error), parameter=_parameter(error))
    elif isinstance(error, ConstraintError):
        failed = ConstraintRefused(_message(error), parameter=_parameter(error))
    else:
        failed = GracefulHTTPError(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    failed.__cause__ = error
    return failed


def _parameter(error: ConstraintError) -> str | None:
    return None if error.location is None else bounded(error.location)


def _message(error: ConstraintError) -> str:
    place = f" (at {bounded(_place(error.location))})" if error.location else ""
    hint = f" Hint: {error.hint}" if error.hint else ""
    return f"{error.message}{place}{hint}"


def _place(location: str) -> str:
    """Write a JSON Pointer with dots: vLLM rewrites whatever looks like a file path in a message."""
    if not location.startswith("#"):
        return location
    steps = [step.replace("~1", "/").replace("~0", "~") for step in location[1:].split("/")[1:]]
    return "$" + "".join(f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{_index(step)}]" for step in steps)


def _index(step: str) -> str:
    return step if step.isdigit() else repr(step)
