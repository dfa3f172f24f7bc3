"""The API server's responses: every constrained choice carries the record of its constraint."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from infernix_plugin.seams.client_errors import keep_failures_out_of_the_log
from infernix_plugin.seams.seam import Seam

if TYPE_CHECKING:
    from infernix_plugin.entrypoints.observed import Watch

_CHAT = "vllm.entrypoints.openai.chat_completion.serving"
_COMPLETION = "vllm.entrypoints.openai.completion.serving"
_MESSAGES = "vllm.entrypoints.anthropic.serving"
_STREAM_PARAMETERS = (
    "self",
    "request",
    "result_generator",
    "request_id",
    "model_name",
    "conversation",
    "tokenizer",
    "request_metadata",
    "chat_template_kwargs",
    "mm_token_counts",
)
_REASON = "vLLM's responses have no place for what became of a constraint."


def _replace_add(original: Any) -> Any:
    from vllm.outputs import CompletionOutput

    CompletionOutput.constraint = None  # so that every output has the attribute

    @functools.wraps(original)
    def add(self: Any, next_output: Any, aggregate: bool) -> None:
        original(self, next_output, aggregate)
        finished = {output.index: output.constraint for output in next_output.outputs if output.constraint is not None}
        for output in self.outputs:
            if output.index in finished:
                output.constraint = finished[output.index]

    return add


def _replace_chat(original: Any) -> Any:
    @functools.wraps(original)
    async def chat_completion_full_generator(
        self: Any, request: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> Any:
        from infernix_plugin.entrypoints.observed import Watch

        watch = Watch()
        response = await original(self, request, watch.outputs(result_generator), *args, **kwargs)
        watch.mark(getattr(response, "choices", ()))
        return response

    return chat_completion_full_generator


def _replace_chat_stream(publish: Callable[[Watch, Any], Any]) -> Callable[[Any], Any]:
    """Make the replacement of a generator of a chat's events, or of its chunks; ``publish`` returns what to yield."""

    def replace(original: Any) -> Any:
        keep_failures_out_of_the_log(_CHAT)

        @functools.wraps(original)
        async def chat_completion_stream_generator(
            self: Any, request: Any, result_generator: Any, *args: Any, **kwargs: Any
        ) -> AsyncIterator[Any]:
            from infernix_plugin.entrypoints.observed import Watch

            watch = Watch(streams=True)
            async for part in original(self, request, watch.outputs(result_generator), *args, **kwargs):
                yield publish(watch, part)

        return chat_completion_stream_generator

    return replace


def _replace_completion(original: Any) -> Any:
    @functools.wraps(original)
    def request_output_to_completion_response(self: Any, final_res_batch: Any, *args: Any, **kwargs: Any) -> Any:
        response = original(self, final_res_batch, *args, **kwargs)
        outputs = [output for result in final_res_batch for output in result.outputs]
        for choice, output in zip(response.choices, outputs, strict=True):
            if output.constraint is not None:
                choice.constraint = output.constraint
        return response

    return request_output_to_completion_response


def _replace_completion_events(original: Any) -> Any:
    keep_failures_out_of_the_log(_COMPLETION)

    @functools.wraps(original)
    async def completion_stream_generator(
        self: Any, request: Any, engine_inputs: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[str]:
        from infernix_plugin.entrypoints.observed import Watch

        def choices_of(result: tuple[int, Any]) -> Any:
            prompt, outputs = result
            return [(output.index + prompt * (request.n or 1), output) for output in outputs.outputs]

        watch = Watch(choices_of, streams=True)
        watched = watch.outputs(result_generator)
        async for event in original(self, request, engine_inputs, watched, *args, **kwargs):
            yield watch.mark_event(event)

    return completion_stream_generator


def _replace_responses(original: Any) -> Any:
    @functools.wraps(original)
    async def responses_full_generator(
        self: Any, request: Any, sampling_params: Any, result_generator: Any, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        response = await original(self, request, sampling_params, result_generator, context, *args, **kwargs)
        last = getattr(context, "last_output", None)
        record = last.outputs[0].constraint if last is not None and last.outputs else None
        if record is not None and hasattr(response, "output"):
            response.constraint = record
        return response

    return responses_full_generator


def _replace_message(original: Any) -> Any:
    from vllm.entrypoints.anthropic.serving import AnthropicMessagesResponse

    class ObservedMessage(AnthropicMessagesResponse):  # type: ignore[misc]
        constraint: dict[str, Any]

    @functools.wraps(original)
    def messages_full_converter(self: Any, generator: Any) -> Any:
        message = original(self, generator)
        record = getattr(generator.choices[0], "constraint", None)
        return message if record is None else ObservedMessage.model_construct(**dict(message), constraint=record)

    return messages_full_converter


def _replace_message_events(original: Any) -> Any:
    keep_failures_out_of_the_log(_MESSAGES)

    @functools.wraps(original)
    async def message_stream_converter(self: Any, generator: Any) -> AsyncIterator[str]:
        from infernix_plugin.entrypoints.observed import MessageWatch

        watch = MessageWatch()
        async for event in original(self, watch.chunks(generator)):
            yield watch.mark_event(event)

    return message_stream_converter


MERGE = Seam(
    module="vllm.outputs",
    attribute="RequestOutput.add",
    reason="Outputs that pile up before they are read are merged field by field; the record is no field of theirs.",
    replace=_replace_add,
    parameters=("self", "next_output", "aggregate"),
)

CHAT = Seam(
    module=_CHAT,
    attribute="OpenAIServingChat.chat_completion_full_generator",
    reason=_REASON,
    replace=_replace_chat,
    parameters=(*_STREAM_PARAMETERS[:-2], "parser", "mm_token_counts"),
)

CHAT_EVENTS = Seam(
    module=_CHAT,
    attribute="OpenAIServingChat.chat_completion_stream_generator",
    reason=_REASON + " In 0.32 the stream is made as text.",
    replace=_replace_chat_stream(lambda watch, event: watch.mark_event(event)),
    parameters=_STREAM_PARAMETERS,
    releases=((0, 32),),
)

CHAT_CHUNKS = Seam(
    module=_CHAT,
    attribute="OpenAIServingChat.chat_completion_stream_generator_raw",
    reason=_REASON + " Since 0.33 the stream is made of objects, for Messages too.",
    replace=_replace_chat_stream(lambda watch, chunk: watch.mark_chunk(chunk)),
    parameters=_STREAM_PARAMETERS,
    releases=((0, 33),),
)

COMPLETION = Seam(
    module=_COMPLETION,
    attribute="OpenAIServingCompletion.request_output_to_completion_response",
    reason=_REASON,
    replace=_replace_completion,
    parameters=(
        "self",
        "final_res_batch",
        "request",
        "request_id",
        "created_time",
        "model_name",
        "tokenizer",
        "request_metadata",
    ),
)

COMPLETION_EVENTS = Seam(
    module=_COMPLETION,
    attribute="OpenAIServingCompletion.completion_stream_generator",
    reason=_REASON,
    replace=_replace_completion_events,
    parameters=(
        "self",
        "request",
        "engine_inputs",
        "result_generator",
        "request_id",
        "created_time",
        "model_name",
        "num_prompts",
        "tokenizer",
        "request_metadata",
    ),
)

RESPONSES = Seam(
    module="vllm.entrypoints.openai.responses.serving",
    attribute="OpenAIServingResponses.responses_full_generator",
    reason=_REASON + " The last event of a stream holds the same object.",
    replace=_replace_responses,
    parameters=(
        "self",
        "request",
        "sampling_params",
        "result_generator",
        "context",
        "model_name",
        "tokenizer",
        "request_metadata",
        "created_time",
    ),
)

MESSAGE = Seam(
    module=_MESSAGES,
    attribute="AnthropicServingMessages.messages_full_converter",
    reason=_REASON,
    replace=_replace_message,
    parameters=("self", "generator"),
)

MESSAGE_EVENTS = Seam(
    module=_MESSAGES,
    attribute="AnthropicServingMessages.message_stream_converter",
    reason=_REASON,
    replace=_replace_message_events,
    parameters=("self", "generator"),
)
