"""Several conversations in one request: judged like a chat, and read by the same parser."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.entrypoints.openai.chat_completion.batch_serving"


def _replace_render(original: Any) -> Any:
    @functools.wraps(original)
    async def render_batch_chat_request(self: Any, request: Any) -> Any:
        from infernix_plugin.entrypoints import validation

        field = validation.refuse_conflicts(request)
        rendered = await original(self, request)
        if isinstance(rendered, tuple):
            chats, _, prompts = rendered
            for chat, prompt in zip(chats, prompts, strict=True):
                await validation.validate_request(self.model_config, self.renderer.tokenizer, chat, [prompt], field)
        return rendered

    return render_batch_chat_request


def _replace_response(original: Any) -> Any:
    @functools.wraps(original)
    async def chat_completion_full_generator_batch(
        self: Any,
        request: Any,
        generators: Any,
        request_id: str,
        model_name: str,
        all_conversations: Any,
        tokenizer: Any,
        request_metadata: Any,
        parser_cls: Any = None,
    ) -> Any:
        from infernix_plugin.entrypoints.observed import Watch

        def choices_of(prompt: int) -> Any:
            return lambda result: [(prompt, output) for output in result.outputs]

        watches = [Watch(choices_of(prompt)) for prompt in range(len(generators))]
        watched = [watch.outputs(results) for watch, results in zip(watches, generators, strict=True)]
        rest = (request_id, model_name, all_conversations, tokenizer, request_metadata)
        if parser_cls is not None:  # vLLM makes its parsers without it here, unlike everywhere else
            parser_cls = functools.partial(parser_cls, model_config=self.model_config)
        response = await original(self, request, watched, *rest, parser_cls)
        for watch in watches:
            watch.mark(getattr(response, "choices", ()))
        return response

    return chat_completion_full_generator_batch


RENDER = Seam(
    module=_MODULE,
    attribute="OpenAIServingChatBatch.render_batch_chat_request",
    reason="It goes past what a chat is rendered by, so the guided fields would be ignored and conflicts pass.",
    replace=_replace_render,
    parameters=("self", "request"),
)

RESPONSE = Seam(
    module=_MODULE,
    attribute="OpenAIServingChatBatch.chat_completion_full_generator_batch",
    reason="vLLM's responses have no place for what became of a constraint, and the parser needs the model's config.",
    replace=_replace_response,
    parameters=(
        "self",
        "request",
        "generators",
        "request_id",
        "model_name",
        "all_conversations",
        "tokenizer",
        "request_metadata",
        "parser_cls",
    ),
)
