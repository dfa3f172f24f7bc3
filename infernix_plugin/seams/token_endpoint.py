"""Tokens in, tokens out (``/inference/v1/generate``): judged before a stream starts, and with the record at the end."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

from infernix_plugin.seams.client_errors import keep_failures_out_of_the_log
from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.entrypoints.scale_out.token_in_token_out.serving"
_REASON = "Its responses have no place for what became of a constraint."
_PARAMETERS = ("self", "request", "result_generator", "request_id", "model_name", "request_metadata")


def _replace_request(original: Any) -> Any:
    @functools.wraps(original)
    async def serve_tokens(self: Any, request: Any, raw_request: Any = None) -> Any:
        from infernix_plugin.entrypoints import validation
        from infernix_plugin.entrypoints.token_request import check_body

        if raw_request is not None:
            body = await raw_request.json()  # which the server has decoded before
            check_body(body, type(request).model_fields, request.sampling_params.__struct_fields__)
        await validation.validate_options(self.model_config, self.renderer.tokenizer, request.sampling_params)
        return await original(self, request, raw_request)

    return serve_tokens


def _replace_response(original: Any) -> Any:
    from pydantic import ConfigDict, SerializeAsAny
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateChoiceBase, GenerateResponseBase

    class ObservedChoice(GenerateChoiceBase):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow")

    class ObservedResponse(GenerateResponseBase):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow")
        choices: list[SerializeAsAny[GenerateChoiceBase]]

    @functools.wraps(original)
    async def serve_tokens_full_generator(
        self: Any, request: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> Any:
        from infernix_plugin.entrypoints.observed import Watch

        watch = Watch()
        response = await original(self, request, watch.outputs(result_generator), *args, **kwargs)
        if not watch.has_records:
            return response
        choices = [ObservedChoice.model_construct(**dict(choice)) for choice in response.choices]
        watch.mark(choices)
        return ObservedResponse.model_construct(**{**dict(response), "choices": choices})

    return serve_tokens_full_generator


def _replace_events(original: Any) -> Any:
    keep_failures_out_of_the_log(_MODULE)

    @functools.wraps(original)
    async def serve_tokens_stream_generator(
        self: Any, request: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[str]:
        from infernix_plugin.entrypoints.observed import Watch

        watch = Watch()
        async for event in original(self, request, watch.outputs(result_generator), *args, **kwargs):
            yield watch.mark_event(event)

    return serve_tokens_stream_generator


REQUEST = Seam(
    module=_MODULE,
    attribute="ServingTokens.serve_tokens",
    reason="Of a stream, vLLM judges the options when it has begun, compiles in the event loop, and ignores fields.",
    replace=_replace_request,
    parameters=("self", "request", "raw_request"),
)

RESPONSE = Seam(
    module=_MODULE,
    attribute="ServingTokens.serve_tokens_full_generator",
    reason=_REASON,
    replace=_replace_response,
    parameters=_PARAMETERS,
    releases=((0, 32),),
)

DERENDERED_RESPONSE = Seam(
    module=_MODULE,
    attribute="ServingTokens.serve_tokens_full_generator",
    reason=_REASON,
    replace=_replace_response,
    parameters=(*_PARAMETERS, "derender_request"),
    releases=((0, 33),),
)

EVENTS = Seam(
    module=_MODULE,
    attribute="ServingTokens.serve_tokens_stream_generator",
    reason=_REASON,
    replace=_replace_events,
    parameters=_PARAMETERS,
)
