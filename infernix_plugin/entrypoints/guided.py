"""The ``guided_*`` fields of older servers, which today's vLLM accepts and ignores: read as what they asked for."""

from __future__ import annotations

import copy
import json
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin import settings
from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.entrypoints.ignored_fields import GUIDED, refuse_ignored, refuse_misplaced
from infernix_plugin.errors import (
    ConflictingConstraints,
    ConstraintError,
    ConstraintTooLarge,
    InvalidSchema,
)

LIMITS = {
    "guided_regex": "guided_regex_bytes",
    "guided_grammar": "guided_grammar_bytes",
    "guided_json": "guided_schema_bytes",
}
"""The dialect's own limits: the settings that hold them, in UTF-8 bytes of the source."""


def read_guided(request: Any) -> str | None:
    """Put the ``guided_*`` constraint of a request into its ``structured_outputs``; it wins over ``response_format``.

    A tool call that the request asks for wins over it.

    Returns:
        The field that counts, ``None`` if there is none.

    Raises:
        ConflictingConstraints: ``structured_outputs`` is there too, the value has not the field's type, or a
            constraint stands where it would be ignored.
        ConstraintTooLarge, InvalidSchema: the source is too long, or cannot be written as JSON.
    """
    given = request.model_extra or {}
    refuse_ignored(given, GUIDED, getattr(type(request), "model_fields", ()))
    refuse_misplaced({name: getattr(request, name, None) for name in ("chat_template_kwargs", "vllm_xargs")})
    field = next((name for name in GUIDED if given.get(name) is not None), None)
    if field is None or _asks_for_call(declared(request, "tool_choice")):
        return None
    if request.structured_outputs is not None:
        raise ConflictingConstraints(
            f"A request can have one constraint, but structured_outputs and {field} are both set.", location=field
        )
    value = given[field]
    _check(field, value)
    try:
        request.structured_outputs = StructuredOutputsParams(**{GUIDED[field]: value})
    except VLLMValidationError as error:
        raise ConflictingConstraints(f"The value of {field} is no constraint.", location=field) from error
    for other in ("response_format", "text"):
        if hasattr(request, other):
            setattr(request, other, None)
    return field


def named_as_given(error: ConstraintError, field: str | None) -> ConstraintError:
    """Return an error that speaks of the field in ``structured_outputs``, with the place that the client wrote."""
    if field is None or error.location != f"structured_outputs.{GUIDED[field]}":
        return error
    moved = copy.copy(error)
    moved.location = field
    return moved


def _asks_for_call(choice: Any) -> bool:
    return choice is not None and choice not in ("auto", "none")


def _check(field: str, value: Any) -> None:
    expected: tuple[type, ...] = {"guided_choice": (list,), "guided_json": (str, dict, bool)}.get(field, (str,))
    if not isinstance(value, expected):
        raise ConflictingConstraints(
            f"{field} cannot be of the type {type(value).__name__}.",
            location=field,
            hint="It is a list of strings." if expected == (list,) else "It is a string.",
        )
    if field not in LIMITS:
        return
    limit = getattr(settings.current(), LIMITS[field])
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"{field} cannot be written as JSON.", location=field) from error
    if size > limit:
        raise ConstraintTooLarge(
            f"{field} has {size} bytes; {LIMITS[field]} is {limit}",
            location=field,
            hint=f"structured_outputs.{GUIDED[field]} takes longer ones.",
        )
