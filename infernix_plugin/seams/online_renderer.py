"""The API server's renderer: judge constraints before a stream starts, so that a bad one is an HTTP 400."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from infernix_plugin.seams.seam import Seam

_MODULE = "vllm.renderers.online_renderer"


_IGNORED = "removed guided-decoding field"


def _is_true(record: logging.LogRecord) -> bool:
    """vLLM warns that it ignores the guided fields; with us they count."""
    return _IGNORED not in str(record.msg)


def _validating(prompts_of: Callable[[Any], Sequence[Any] | None]) -> Callable[[Any], Any]:
    """Return a replacer; ``prompts_of`` picks the engine inputs of a result, ``None`` for an error response."""

    def replace(original: Any) -> Any:
        logging.getLogger("vllm.entrypoints.serve.engine.protocol").addFilter(_is_true)

        @functools.wraps(original)
        async def render(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            from infernix_plugin.entrypoints import validation

            field = validation.refuse_conflicts(request)
            await validation.make_ready(self, request)
            result = await original(self, request, *args, **kwargs)
            prompts = prompts_of(result)
            if prompts is not None:
                await validation.validate_request(self.model_config, self.renderer.tokenizer, request, prompts, field)
            return result

        return render

    return replace


def _without_marks(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def preprocess_chat(self: Any, *args: Any, **kwargs: Any) -> Any:
        from infernix_plugin.entrypoints.tools.joining import unmarked

        given = signature.bind(self, *args, **kwargs)
        if given.arguments.get("tool_dicts"):
            given.arguments["tool_dicts"] = unmarked(given.arguments["tool_dicts"])
        return await original(*given.args, **given.kwargs)

    return preprocess_chat


def _chat_prompts(result: Any) -> Sequence[Any] | None:
    return result[1] if isinstance(result, tuple) else None


def _completion_prompts(result: Any) -> Sequence[Any] | None:
    return result if isinstance(result, list) else None


def _responses_prompts(result: Any) -> Sequence[Any] | None:
    return [result.engine_input] if hasattr(result, "engine_input") else None


_REASON = "The last point that has both the final request and its prompt and still can answer with an HTTP status."

CHAT = Seam(
    module=_MODULE,
    attribute="OnlineRenderer.render_chat",
    reason=_REASON,
    replace=_validating(_chat_prompts),
    parameters=("self", "request", "skip_mm_cache"),
)

COMPLETION = Seam(
    module=_MODULE,
    attribute="OnlineRenderer.render_completion",
    reason=_REASON,
    replace=_validating(_completion_prompts),
    parameters=("self", "request", "skip_mm_cache"),
)

RESPONSES = Seam(
    module=_MODULE,
    attribute="OnlineRenderer.render_responses",
    reason=_REASON,
    replace=_validating(_responses_prompts),
    parameters=(
        "self",
        "request",
        "previous_messages",
        "previous_response_outputs",
        "tool_server",
        "skip_mm_cache",
    ),
)

PROMPT = Seam(
    module=_MODULE,
    attribute="OnlineRenderer.preprocess_chat",
    reason="Every endpoint that renders tools comes here, and `strict` would reach the prompt and change the answer.",
    replace=_without_marks,
    parameters=(
        "self",
        "request",
        "messages",
        "default_template",
        "default_template_content_format",
        "default_template_kwargs",
        "tool_dicts",
        "parser",
        "skip_mm_cache",
    ),
)
