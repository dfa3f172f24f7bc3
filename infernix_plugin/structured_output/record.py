"""What travels from the engine core to the API process when a constrained request ends.

vLLM 0.32 gives an output no free field but ``kv_transfer_params``; the record rides there under one key and is taken
out again before anything else in the API process sees it. Its values are plain, as msgpack needs them.
"""

from __future__ import annotations

from typing import Any

from infernix_plugin import errors
from infernix_plugin.errors import ConstraintError, InfernixError

KEY = "infernix"

Record = dict[str, Any]


def error_record(error: BaseException) -> Record:
    """Describe an error in plain values. A message of a foreign exception is kept from users: it may hold anything."""
    if isinstance(error, ConstraintError):
        return {
            "type": type(error).__name__,
            "message": error.message,
            "location": error.location,
            "hint": error.hint,
        }
    message = str(error) if isinstance(error, InfernixError) else "The constraint engine failed; see the server log."
    return {"type": InfernixError.__name__, "message": message, "location": None, "hint": None}


def error_from(record: Record) -> InfernixError:
    """Rebuild the error that :func:`error_record` described."""
    kind: object = getattr(errors, str(record["type"]), None)
    if isinstance(kind, type) and issubclass(kind, ConstraintError):
        return kind(record["message"], location=record["location"], hint=record["hint"])
    return InfernixError(record["message"])


def attach(params: dict[str, Any] | None, record: Record) -> dict[str, Any]:
    """Return ``kv_transfer_params`` with the record added."""
    return {**(params or {}), KEY: record}


def detach(params: dict[str, Any] | None) -> tuple[dict[str, Any] | None, Record | None]:
    """Split ``kv_transfer_params`` into what users may see and our record."""
    if not params or KEY not in params:
        return params, None
    rest = {key: value for key, value in params.items() if key != KEY}
    return rest or None, params[KEY]
