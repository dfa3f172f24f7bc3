"""What a request of the Messages API asks for beyond the fields that vLLM carries over to its chat request."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError
from vllm.entrypoints.generate.base.protocol import JsonSchemaResponseFormat, ResponseFormat
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin.entrypoints.guided import FIELDS
from infernix_plugin.entrypoints.options import REMOVED
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.errors import ConflictingConstraints

_STRUCTURED: TypeAdapter[StructuredOutputsParams] = TypeAdapter(StructuredOutputsParams)


def carry_over(given: Any, request: Any) -> None:
    """Put the constraints of a Messages request into the chat request that vLLM made of it.

    Args:
        given: vLLM's ``AnthropicMessagesRequest``, with the fields that it does not know as extra ones.
        request: the chat request.

    Raises:
        VLLMValidationError: a field is malformed, or belongs to another API; becomes an HTTP 400.
    """
    extra = given.model_extra or {}
    if extra.get("response_format") is not None:
        raise refusal(
            ConflictingConstraints(
                "The Messages API has no response_format.",
                location="response_format",
                hint="Its name here is output_config.format.",
            ),
            "",
        )
    structured = extra.get("structured_outputs")
    if structured is not None:
        request.structured_outputs = _read(structured)
    for name in (*FIELDS, *REMOVED):
        if extra.get(name) is not None:
            request.model_extra[name] = extra[name]
    form = given.output_config and given.output_config.format
    if form and request.response_format is None:  # vLLM drops a schema that is empty or missing
        empty = JsonSchemaResponseFormat(name=form.type, schema=form.json_schema)
        request.response_format = ResponseFormat(type=form.type, json_schema=empty)


def _read(structured: Any) -> StructuredOutputsParams:
    try:
        return _STRUCTURED.validate_python(structured)
    except VLLMValidationError as error:
        none = ConflictingConstraints("structured_outputs must hold one constraint.", location="structured_outputs")
        raise refusal(none, "") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["structured_outputs", *map(str, first["loc"])])
        raise refusal(ConflictingConstraints(f"{place}: {first['msg']}", location=place), "") from error
