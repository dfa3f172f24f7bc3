"""Requests that continue the last message of the assistant: what it says counts as the beginning of the output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from infernix_plugin.entrypoints.carrier import carrying
from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.errors import ConflictingConstraints
from infernix_plugin.framing.continuation import written_content
from infernix_plugin.framing.phases import SEPARATOR, THINK_CLOSE, THINK_OPEN
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import TokenDomain
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.translation import Asked

_CLOSED_REASONING = re.compile(rf"\s*{THINK_OPEN}(?P<reasoning>.*?){THINK_CLOSE}\n*(?P<content>.*)", re.DOTALL)


def lay_out_reasoning(request: Any) -> None:
    """Write closed reasoning at the beginning of a message to continue as Qwen's templates write it.

    A template takes the two apart and joins them in its own layout; vLLM refuses a message that is another afterwards.
    """
    last = request.messages[-1] if declared(request, "messages") and is_continuation(request) else None
    found = _CLOSED_REASONING.fullmatch(last["content"]) if last and isinstance(last.get("content"), str) else None
    if last and found and THINK_CLOSE not in found["content"]:
        laid_out = f"{THINK_OPEN}\n{found['reasoning'].strip()}\n{THINK_CLOSE}{SEPARATOR}{found['content']}"
        request.messages = [*request.messages[:-1], {**last, "content": laid_out}]


def continued(request: Any, asked: Asked, prompt: Sequence[int], domain: TokenDomain) -> Asked:
    """Return what is asked of an output that goes on behind the content of the prompt's last message, and keep it in
    the request.

    Raises:
        ConflictingConstraints: the prompt does not end with that message as the client wrote it.
    """
    if isinstance(asked, FramedOutput):
        contract, content = asked.contract, asked.content
    elif isinstance(asked, OutputConstraint):
        contract, content = None, asked
    else:
        return asked
    prefix = _written(prompt, domain, last_text(request))
    if not prefix:
        return asked
    framed = FramedOutput(contract, content, prefix)
    request.structured_outputs = carrying(framed.text())
    for field in ("response_format", "text"):
        if hasattr(request, field):
            setattr(request, field, None)
    return framed


def is_continuation(request: Any) -> bool:
    """Return whether the output goes on with the last message."""
    if hasattr(request, "input"):
        from vllm.entrypoints.openai.responses.utils import should_continue_final_message

        return bool(should_continue_final_message(request.input))
    return bool(declared(request, "continue_final_message", False))


def last_text(request: Any) -> str | None:
    """Return the text of the last message as the client wrote it, ``None`` if it is not text."""
    messages = request.input if hasattr(request, "input") else request.messages
    last = messages[-1] if isinstance(messages, list) and messages else {}
    content = _get(last, "content")
    if isinstance(content, str):
        return content
    texts = [_get(part, "text") for part in content or []]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else None


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _decoded(written: bytes) -> str:
    try:
        return written.decode()
    except UnicodeDecodeError:
        raise ConflictingConstraints("The message to continue ends inside a character.", location="messages") from None


def _written(prompt: Sequence[int], domain: TokenDomain, text: str | None) -> str:
    """What the prompt holds of the message to continue, which must be what the client wrote."""
    if text is not None and THINK_CLOSE in text:
        # Reasoning in the message is behind the framing; content must be there to the letter.
        text = text.rpartition(THINK_CLOSE)[2].removeprefix(SEPARATOR)
    found = written_content(prompt, domain)
    if found is None:
        # Another model's form: its prompt ends with the message, or the template changed that.
        prefix = text or ""
        kept = text is not None and b"".join(map(domain.token_bytes, prompt)).endswith(text.encode())
    else:
        prefix = _decoded(found)
        kept = text is None or prefix in ("", text)
    if not kept:
        raise ConflictingConstraints(
            "The chat template changed the message to continue, so its content cannot be told from the prompt.",
            location="messages",
            hint="Most templates cut whitespace off the ends; let the message end with another character.",
        )
    return prefix
