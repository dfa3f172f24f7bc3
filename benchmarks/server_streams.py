"""One streamed request in each protocol's own client, and its outputs in common words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

LOST = "lost"
"""The reason of an output whose stream said something else than its end."""
_REASONS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


@dataclass
class Streamed:
    """One output; ``reason`` in Chat's words, ``record`` what became of its constraint."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)
    """Name and arguments of each."""
    reason: str = ""
    record: dict[str, Any] | None = None


@dataclass
class Answer:
    """All outputs of one request."""

    outputs: list[Streamed]
    tokens: int = 0
    """What the server says that it committed."""
    arrived: int | None = None
    """How many tokens the stream brought; ``None`` where it names none."""


async def chat(client: AsyncOpenAI, request: Mapping[str, Any]) -> Answer:
    """Send a Chat request with its stream options and ``return_token_ids``."""
    answer = Answer([Streamed() for _ in range(request.get("n", 1))], arrived=0)
    async for chunk in await client.chat.completions.create(**request):
        for choice in chunk.choices:
            output = answer.outputs[choice.index]
            output.text += choice.delta.content or ""
            answer.arrived += len(getattr(choice, "token_ids", None) or ())
            for call in choice.delta.tool_calls or ():
                if call.id:
                    output.calls.append([call.function.name, ""])
                output.calls[call.index][1] += call.function.arguments or ""
            if choice.finish_reason is not None:
                output.reason = choice.finish_reason
                output.record = getattr(choice, "constraint", None)
        if chunk.usage is not None:
            answer.tokens = chunk.usage.completion_tokens
    return answer


async def responses(client: AsyncOpenAI, request: Mapping[str, Any]) -> Answer:
    """Send a Responses request; its last event must say what the deltas said."""
    output = Streamed()
    answer = Answer([output])
    async for event in await client.responses.create(**request):
        if event.type == "response.output_text.delta":
            output.text += event.delta
        elif event.type == "response.completed":
            whole = event.response
            output.reason = "stop" if whole.status == "completed" else "length"
            output.record = getattr(whole, "constraint", None)
            answer.tokens = whole.usage.output_tokens
            if whole.output_text != output.text:
                output.reason = LOST
    return answer


async def messages(client: AsyncAnthropic, request: Mapping[str, Any]) -> Answer:
    """Send a request of the Messages API."""
    output = Streamed()
    answer = Answer([output])
    async for event in await client.messages.create(**request):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            output.text += event.delta.text
        elif event.type == "message_delta":
            output.reason = _REASONS.get(event.delta.stop_reason, str(event.delta.stop_reason))
            output.record = getattr(event, "constraint", None)
            answer.tokens = event.usage.output_tokens
    return answer
