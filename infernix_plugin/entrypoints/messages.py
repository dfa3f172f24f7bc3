"""What a request of the Messages API asks for beyond the fields that vLLM carries over to its chat request."""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.generate.base.protocol import JsonSchemaResponseFormat, ResponseFormat

from infernix_plugin.entrypoints.ignored_fields import GUIDED, REMOVED, refuse_ignored
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.entrypoints.structured_outputs import FIELD as STRUCTURED
from infernix_plugin.entrypoints.structured_outputs import read_structured_outputs
from infernix_plugin.errors import ConflictingConstraints


def carry_over(given: Any, request: Any) -> None:
    """Put the constraints of a Messages request into the chat request that vLLM made of it.

    Args:
        given: vLLM's ``AnthropicMessagesRequest``, with the fields that it does not know as extra ones.
        request: the chat request.

    Raises:
        VLLMValidationError: a field is malformed, or belongs to another API; becomes an HTTP 400.
    """
    extra = given.model_extra or {}
    try:
        refuse_ignored(extra, (*GUIDED, STRUCTURED), type(given).model_fields)
        structured = extra.get(STRUCTURED)
        if structured is not None:
            request.structured_outputs = read_structured_outputs(structured)
    except ConflictingConstraints as error:
        raise refusal(error, "") from error
    for name in (*GUIDED, *REMOVED):
        if extra.get(name) is not None:
            request.model_extra[name] = extra[name]
    form = given.output_config and given.output_config.format
    if form and request.response_format is None:  # vLLM drops a schema that is empty or missing
        empty = JsonSchemaResponseFormat(name=form.type, schema=form.json_schema)
        request.response_format = ResponseFormat(type=form.type, json_schema=empty)
