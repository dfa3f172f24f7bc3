"""Our errors as the exceptions that vLLM's servers turn into HTTP responses."""

from __future__ import annotations

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

_DIRECTORIES = frozenset({"home", "usr", "opt", "var", "tmp", "root", "lib", "mnt", "srv"})
"""With one of these, vLLM thinks, a path of the server begins."""


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
    return error.told(_place(error.location) if error.location else None)


def _place(location: str) -> str:
    """A location whose JSON Pointer, as a URI fragment (RFC 6901, section 6), has nothing that looks like a file path:
    vLLM cuts file paths out of messages.
    """
    before, mark, pointer = location.partition("#")
    return before + mark + "/".join(map(_encoded, pointer.split("/"))) if mark else location


def _encoded(step: str) -> str:
    step = step.replace("%", "%25").replace(".", "%2E")
    return f"%{ord(step[0]):X}{step[1:]}" if step in _DIRECTORIES else step
