"""What travels from the engine core to the API process when a constrained request ends.

vLLM 0.32 gives an output no free field but ``kv_transfer_params``; the record rides there under one key and is taken
out again before anything else in the API process sees it. Its values are plain, as msgpack needs them. Beside it, under
a key of their own, ride the engine core's figures, which are no business of the client.
"""

from __future__ import annotations

from typing import Any, TypedDict

from infernix_plugin.errors import ConstraintError, InfernixError, kind_of_constraint_error
from infernix_plugin.framing.branch import Branch

KEY = "infernix"
_ENGINE = "engine"

Record = dict[str, Any]


class EngineFigures(TypedDict):
    """What one engine core holds at the moment."""

    index: int
    """Which engine of a data-parallel deployment."""
    cache_bytes: int
    cache_entries: int
    compiling: int
    """Grammars that are being compiled or wait for their turn."""


def blank_record(kind: str, error: BaseException | None = None) -> Record:
    """Return the observation of a request whose constraint never reached a session: what went wrong is ``error``."""
    record: Record = {
        "kind": kind,
        "branch": Branch.UNDECIDED.value,
        "complete": False,
        "terminated": False,
        "cache": None,
        "mask_positions": 0,
        "mask_bytes": 0,
        "illegal_drafts": 0,
        "prepare_ms": 0.0,
        "mask_ms": 0.0,
        "accept_ms": 0.0,
    }
    if error is not None:
        record["error"] = error_record(error)
    return record


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
    kind = kind_of_constraint_error(record["type"])
    if kind is None:
        return InfernixError(record["message"])
    return kind(record["message"], location=record["location"], hint=record["hint"])


def attach(params: dict[str, Any] | None, record: Record, figures: EngineFigures | None = None) -> dict[str, Any]:
    """Return ``kv_transfer_params`` with the record, and the engine's figures, added."""
    return {**(params or {}), KEY: record if figures is None else {**record, _ENGINE: figures}}


def detach(params: dict[str, Any] | None) -> tuple[dict[str, Any] | None, Record | None, EngineFigures | None]:
    """Split ``kv_transfer_params`` into what users may see, our record, and the engine's figures."""
    if not params or KEY not in params:
        return params, None, None
    rest = {key: value for key, value in params.items() if key != KEY}
    record = dict(params[KEY])
    figures: EngineFigures | None = record.pop(_ENGINE, None)
    return rest or None, record, figures
