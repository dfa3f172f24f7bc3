"""The request of ``/inference/v1/generate`` as a client writes it: what vLLM would ignore in it is refused.

vLLM reads it without the fields that it does not know, so this looks at the decoded body.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from infernix_plugin.entrypoints.ignored_fields import GUIDED, refuse_ignored
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.entrypoints.structured_outputs import FIELD, read_structured_outputs
from infernix_plugin.errors import ConflictingConstraints

HOLDER = "sampling_params"


def check_body(body: Any, own: Collection[str], options: Collection[str]) -> None:
    """Refuse constraints, and bounds of the output, where they would be ignored.

    Args:
        body: decoded.
        own: the fields of the request.
        options: those of its ``sampling_params``.

    Raises:
        VLLMValidationError: becomes an HTTP 400.
    """
    if not isinstance(body, Mapping):
        return
    try:
        for name in options:
            if name not in own and body.get(name) is not None:
                raise _ignored(name, f"It belongs inside {HOLDER}.")
        _refuse_unknown(body, {*own, *options}, options)
        held = body.get(HOLDER)
        if isinstance(held, Mapping):
            _judge_held(held, options)
    except ConflictingConstraints as error:
        raise refusal(error, "") from error


def _judge_held(held: Mapping[str, Any], options: Collection[str]) -> None:
    try:
        _refuse_unknown(held, options, options)
        if held.get(FIELD) is not None:
            read_structured_outputs(held[FIELD])
    except ConflictingConstraints as error:
        moved = copy.copy(error)
        moved.location = f"{HOLDER}.{error.location}"
        raise moved from error


def _refuse_unknown(given: Mapping[str, Any], known: Collection[str], options: Collection[str]) -> None:
    for name, key in GUIDED.items():
        if given.get(name) is not None:
            raise _ignored(name, f'It is said as {FIELD}: {{"{key}": ...}}.')
    refuse_ignored({name: value for name, value in given.items() if name not in known}, (), options)


def _ignored(name: str, hint: str) -> ConflictingConstraints:
    return ConflictingConstraints(f"{name} would be ignored here.", location=name, hint=hint)
