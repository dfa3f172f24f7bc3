"""The field ``structured_outputs`` as a client writes it: one constraint, known options, values of the right types.

vLLM's own reader ignores a key that it does not know, and answers the rest with a dump of its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.errors import ConflictingConstraints, bounded, excerpt

FIELD = "structured_outputs"
KINDS = {
    "json": "a JSON Schema, as an object or as its text",
    "regex": "a string",
    "choice": "a list of strings",
    "grammar": "a string",
    "json_object": "true",
    "structural_tag": "a string",
}
"""The constraints, and what the value of each is."""
OPTIONS = {
    "disable_any_whitespace": "true or false",
    "disable_additional_properties": "true or false",
    "whitespace_pattern": "a string",
}

_VLLMS_OWN = ("_backend", "_backend_was_auto")
"""In what vLLM writes down and reads again, as it does with each chat of a batch. A client's values are not read."""

_PARAMS: TypeAdapter[StructuredOutputsParams] = TypeAdapter(StructuredOutputsParams)


def check_field(request: Any) -> Any:
    """Return the decoded body of a request as it is, if its ``structured_outputs`` can be read.

    Raises:
        VLLMValidationError: they cannot; becomes an HTTP 400.
    """
    given = request.get(FIELD) if isinstance(request, dict) else None
    if given is not None and not isinstance(given, StructuredOutputsParams):
        try:
            read_structured_outputs(given)
        except ConflictingConstraints as error:
            raise refusal(error, "") from error
    return request


def read_structured_outputs(given: Any) -> StructuredOutputsParams:
    """Read the value of the field.

    Raises:
        ConflictingConstraints: it is not one constraint, or has a key that vLLM would ignore.
    """
    if not isinstance(given, Mapping):
        raise ConflictingConstraints(
            f"{FIELD} must be an object, not of the type {type(given).__name__}.", location=FIELD, hint=_form()
        )
    for name in given:
        if name not in KINDS and name not in OPTIONS and name not in _VLLMS_OWN:
            meant = get_close_matches(str(name), (*KINDS, *OPTIONS), n=1)
            raise ConflictingConstraints(
                f"{FIELD} has no key {excerpt(str(name))}.",
                location=f"{FIELD}.{bounded(str(name))}",
                hint=f"Did you mean {meant[0]}?" if meant else _form(),
            )
    kinds = [name for name in KINDS if given.get(name) is not None]
    if not kinds:
        raise ConflictingConstraints(f"{FIELD} holds no constraint.", location=FIELD, hint=_form())
    if len(kinds) > 1:
        raise ConflictingConstraints(
            f"A request can have one constraint, but {' and '.join(kinds)} are set.", location=f"{FIELD}.{kinds[1]}"
        )
    try:
        return _PARAMS.validate_python(given)
    except ValidationError as error:
        raise _of_another_type(given, error.errors()[0]["loc"]) from error


def _of_another_type(given: Mapping[str, Any], path: tuple[int | str, ...]) -> ConflictingConstraints:
    """``path`` is pydantic's: a key, then an index or a type that it tried."""
    name = str(path[0])
    value = given[name]
    place = f"{FIELD}.{name}"
    if isinstance(value, list) and len(path) > 1 and isinstance(path[1], int):
        value, place = value[path[1]], f"{place}[{path[1]}]"
    return ConflictingConstraints(
        f"{place} cannot be of the type {type(value).__name__}.",
        location=place,
        hint=f"{name} is {(KINDS | OPTIONS)[name]}.",
    )


def _form() -> str:
    *most, last = KINDS
    return f"It holds one of {', '.join(most)} or {last}."
