"""The field ``structured_outputs`` as a client writes it: one constraint, known options, values of the right types.

vLLM's own reader ignores a key that it does not know, and answers the rest with a dump of its model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams, check_json_nesting

from infernix_plugin.entrypoints.ignored_fields import refuse_ignored_members
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.entrypoints.response_formats import (
    CHAT,
    MESSAGES,
    RESPONSES,
    check_format_holder,
    check_response_format,
)
from infernix_plugin.entrypoints.tools.members import INPUT_SCHEMA, refuse_ignored_in_function
from infernix_plugin.errors import ConflictingConstraints, ConstraintError, InvalidGrammar, bounded, excerpt
from infernix_plugin.structured_output.tag_fault import fault_of, judged_alone

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

_BOOLEANS = ("json_object", "disable_any_whitespace", "disable_additional_properties")
"""Pydantic makes booleans of numbers and words, too."""

_VLLMS_OWN = ("_backend", "_backend_was_auto")
"""In what vLLM writes down and reads again, as it does with each chat of a batch. A client's values are not read."""

_PARAMS: TypeAdapter[StructuredOutputsParams] = TypeAdapter(StructuredOutputsParams)


def check_field(request: Any) -> Any:
    """Return the decoded body of a request as it is, if its ``structured_outputs`` and response format can be read.

    Raises:
        VLLMValidationError: they cannot; becomes an HTTP 400.
    """
    if not isinstance(request, dict):
        return request
    given = request.get(FIELD)
    try:
        if given is not None and not isinstance(given, StructuredOutputsParams):
            read_structured_outputs(given)
        check_response_format(request.get(CHAT), CHAT)
        check_format_holder(request.get("text"), RESPONSES)
        reasoning = request.get("reasoning")
        if isinstance(reasoning, Mapping):
            refuse_ignored_members(reasoning, ("effort",), "reasoning")
    except ConstraintError as error:
        raise refusal(error, CHAT if isinstance(error, InvalidGrammar) else "") from error
    return request


def check_messages_fields(request: Any) -> Any:
    """Return the decoded body of a request of Messages as it is, if its response format and its tools can be read.

    Raises:
        VLLMValidationError: they cannot; becomes an HTTP 400.
    """
    if not isinstance(request, dict):
        return request
    config, tools, choice = (request.get(name) for name in ("output_config", "tools", "tool_choice"))
    try:
        check_format_holder(config, MESSAGES)
        if isinstance(config, Mapping):
            refuse_ignored_members(config, ("effort",), "output_config")
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, Mapping):
                refuse_ignored_in_function(tool, f"tools[{index}]", INPUT_SCHEMA)
        if isinstance(choice, Mapping):
            refuse_ignored_members(choice, ("disable_parallel_tool_use",), "tool_choice")
    except ConflictingConstraints as error:
        raise refusal(error, "") from error
    return request


def check_tag(judge: Callable[[Any], None], tag: Any, field: str) -> None:
    """Let vLLM judge what it can of a structural tag, and say where the tag is wrong if it is.

    The rest, schemas and the names of tokens, is judged when the tag is compiled.

    Args:
        judge: vLLM's own judgement of a tag, which says that it is wrong.
        tag: the JSON text.
        field: of the request, that holds it.

    Raises:
        VLLMValidationError: becomes an HTTP 400.
    """
    if not isinstance(tag, str) or not tag:
        judge(tag)
        return
    check_json_nesting(tag, structural_tag=True)
    place = f"{FIELD}.structural_tag" if field == FIELD else field
    try:
        judged = judged_alone(tag)
        if judged is not None:
            judge(judged)
    except VLLMValidationError:
        fault = fault_of(tag)
        if fault is None:
            raise
        raise refusal(fault, place) from fault
    except ConstraintError as fault:
        raise refusal(fault, place) from fault


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
    for name in _BOOLEANS:
        if given.get(name) is not None and not isinstance(given[name], bool):
            raise _of_another_type(given, (name,))
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
