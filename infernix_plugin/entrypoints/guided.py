"""The ``guided_*`` fields of older servers, which today's vLLM accepts and ignores: read as what they asked for."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin import settings
from infernix_plugin.entrypoints.options import REMOVED
from infernix_plugin.errors import (
    ConflictingConstraints,
    ConstraintError,
    ConstraintTooLarge,
    InvalidSchema,
    bounded,
    excerpt,
)

FIELDS = {
    "guided_choice": "choice",
    "guided_regex": "regex",
    "guided_grammar": "grammar",
    "guided_json": "json",
}
"""Each field and its name in ``structured_outputs``. Where several are given, the first in this order counts."""

_NEARLY = 0.85
"""How alike two names are, of 1, for the one to be a slip of the pen for the other."""

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
        ConflictingConstraints: ``structured_outputs`` is there too, the value has not the field's type, or a field
            is a misspelled one of these.
        ConstraintTooLarge, InvalidSchema: the source is too long, or cannot be written as JSON.
    """
    given = request.model_extra or {}
    _refuse_misspelled(given)
    field = next((name for name in FIELDS if given.get(name) is not None), None)
    if field is None or _asks_for_call(getattr(request, "tool_choice", None)):
        return None
    if request.structured_outputs is not None:
        raise ConflictingConstraints(
            f"A request can have one constraint, but structured_outputs and {field} are both set.", location=field
        )
    value = given[field]
    _check(field, value)
    try:
        request.structured_outputs = StructuredOutputsParams(**{FIELDS[field]: value})
    except VLLMValidationError as error:
        raise ConflictingConstraints(f"The value of {field} is no constraint.", location=field) from error
    for other in ("response_format", "text"):
        if hasattr(request, other):
            setattr(request, other, None)
    return field


def _refuse_misspelled(given: Mapping[str, Any]) -> None:
    """A field that vLLM does not know it ignores, and the answer would have no constraint."""
    for name in given:
        if name in FIELDS or name in REMOVED:
            continue
        meant = get_close_matches(name, FIELDS, n=1, cutoff=_NEARLY)
        if meant or name.startswith("guided_"):
            raise ConflictingConstraints(
                f"There is no field {excerpt(name)}, and it would be ignored.",
                location=bounded(name),
                hint=f"Did you mean {meant[0]}?" if meant else f"There are {', '.join(FIELDS)}.",
            )


def named_as_given(error: ConstraintError, field: str | None) -> ConstraintError:
    """Return an error that speaks of the field in ``structured_outputs``, with the place that the client wrote."""
    if field is None or error.location != f"structured_outputs.{FIELDS[field]}":
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
            hint=f"structured_outputs.{FIELDS[field]} takes longer ones.",
        )
