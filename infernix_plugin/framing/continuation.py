"""Content that a prompt ends with: the output goes on from it, and only what is new is published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from infernix_plugin.errors import ConflictingConstraints, InvalidContinuation
from infernix_plugin.framing.phases import MESSAGE_START, SEPARATOR, THINK_CLOSE, THINK_OPEN
from infernix_plugin.framing.tools.markup import CALL_CLOSE, CALL_OPEN

ROLE_LINE = b"assistant\n"


class Vocabulary(Protocol):
    """What a token domain knows of its tokens."""

    def token_bytes(self, token: int) -> bytes:
        """What a token writes."""

    def control_id(self, text: str) -> int | None:
        """The id of a control token."""

    def byte_token(self, byte: int) -> int | None:
        """A token that writes exactly this byte."""


def written_content(prompt_token_ids: Sequence[int], vocabulary: Vocabulary) -> bytes | None:
    """The content of the last message of a prompt, as far as it is written; nothing if the reasoning is still open.

    ``None`` if no token says where the message begins, as in prompts that are not of Qwen's form.
    A prompt token may hold the end of the framing and the beginning of the content, so this goes by bytes.
    """
    markers = {marker: vocabulary.control_id(marker) for marker in (THINK_OPEN, THINK_CLOSE, MESSAGE_START)}
    known = {token for token in markers.values() if token is not None}
    at = next((at for at in range(len(prompt_token_ids) - 1, -1, -1) if prompt_token_ids[at] in known), None)
    if at is not None and prompt_token_ids[at] == markers[THINK_OPEN]:
        return b""
    if at is None or markers[MESSAGE_START] is None:
        return None
    behind = b"".join(map(vocabulary.token_bytes, prompt_token_ids[at + 1 :]))
    lead = ROLE_LINE if prompt_token_ids[at] == markers[MESSAGE_START] else SEPARATOR.encode()
    return behind.removeprefix(lead)


def as_tokens(prefix: str, vocabulary: Vocabulary) -> list[int]:
    """Written text as tokens for a grammar with calls: each ``<tool_call>`` as its token, other text byte by byte.

    Raises:
        InvalidContinuation: a call is complete in it, and would be published again.
        ConflictingConstraints: the vocabulary has no token for one of the bytes.
    """
    if CALL_CLOSE in prefix:
        raise InvalidContinuation(
            "The already written output holds a complete call, which cannot be continued",
            location=f"offset {len(prefix[: prefix.index(CALL_CLOSE)].encode())}",
            hint="Send the call in tool_calls, and its result, instead.",
        )
    opening = vocabulary.control_id(CALL_OPEN)
    tokens: list[int] = []
    for index, part in enumerate(prefix.split(CALL_OPEN)):
        if index:
            tokens += [opening] if opening is not None else _bytes(CALL_OPEN, vocabulary)
        tokens += _bytes(part, vocabulary)
    return tokens


def _bytes(text: str, vocabulary: Vocabulary) -> list[int]:
    found = [vocabulary.byte_token(byte) for byte in text.encode()]
    tokens = [token for token in found if token is not None]
    if len(tokens) < len(found):
        raise ConflictingConstraints("The model's vocabulary cannot write the continued text byte by byte.")
    return tokens
