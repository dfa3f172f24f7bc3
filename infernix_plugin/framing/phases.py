"""Reasoning before the content, as part of the grammar.

A Qwen prompt may end inside an open ``<think>`` block. The output then begins with free reasoning, which ends at the
``</think>`` *token*, known by its id and never by its spelling, followed by exactly two line breaks and the content.
Inside the reasoning the output cannot end, so a request never completes without its content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from infernix_plugin.grammar.ir import Grammar, Literal, Node, Ref, TokenSet, alt, seq

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
MESSAGE_START = "<|im_start|>"
TOOL_CALL = "<tool_call>"
SEPARATOR = "\n\n"
"""What stands between the closing token and the content; it belongs to neither."""


@dataclass(frozen=True, slots=True)
class Framing:
    """The phases an output goes through; hashable, part of a compiled grammar's identity.

    With ``thinking`` the output starts inside the reasoning that the token ``close_id`` ends; without, it is content
    from its first token. ``separator`` stands between the closing token and the content, and the tokens ``never`` do
    not occur in the reasoning.
    """

    thinking: bool = False
    close_id: int | None = None
    separator: str = SEPARATOR
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.thinking != (self.close_id is not None):
            raise ValueError("a framing has a closing token exactly when it starts in the reasoning")

    def apply(self, content: Grammar) -> Grammar:
        """The grammar of the whole output, given that of its content."""
        if self.close_id is None:
            return content
        name = _unused("think", content.rules)
        close, any_other = TokenSet((self.close_id,)), TokenSet((self.close_id, *self.never), exclude=True)
        # Right recursion keeps every mask one look-up per rule; a star in front of the content would not.
        think = alt(seq(close, Literal(self.separator), Ref(content.root)), seq(any_other, Ref(name)))
        unique = content.unique and replace(content.unique, opening=self.close_id, separator=self.separator)
        return Grammar({name: think, **content.rules}, name, unique)


CONTENT = Framing()
"""The output is content from its first token."""


def _unused(name: str, rules: Mapping[str, Node]) -> str:
    while name in rules:
        name += "_"
    return name


class ControlTokens(Protocol):
    """What names control tokens: a token domain, or :class:`ControlIds`."""

    def control_id(self, text: str) -> int | None:
        """The id of the control token with this text, or ``None`` when the model has none."""


@dataclass(frozen=True, slots=True)
class ControlIds:
    """The control tokens that decide the phase of a prompt, by id; ``None`` where the model has none."""

    think_open: int | None = None
    think_close: int | None = None
    message_start: int | None = None

    def control_id(self, text: str) -> int | None:
        """The id of the control token with this text."""
        return {
            THINK_OPEN: self.think_open,
            THINK_CLOSE: self.think_close,
            MESSAGE_START: self.message_start,
        }.get(text)


def prompt_framing(prompt_token_ids: Sequence[int], tokens: ControlTokens) -> Framing:
    """The framing of the output that follows a prompt.

    The last of ``<think>``, ``</think>`` and ``<|im_start|>`` in the prompt decides, by id: an open reasoning block
    goes on in the output, anything else means content. A model without the two reasoning tokens has only content.
    """
    think_open, think_close = tokens.control_id(THINK_OPEN), tokens.control_id(THINK_CLOSE)
    if think_open is None or think_close is None:
        return CONTENT
    deciding = {think_open, think_close, tokens.control_id(MESSAGE_START)}
    last = next((token for token in reversed(prompt_token_ids) if token in deciding), None)
    return Framing(thinking=True, close_id=think_close) if last == think_open else CONTENT


def read_by_parser(framing: Framing, tokens: ControlTokens) -> Framing:
    """The same framing for an output that one of vLLM's reasoning parsers takes apart.

    Such a parser gives everything behind the closing token to the content, so nothing may stand between them, and it
    takes ``<tool_call>`` for the end of the reasoning as well, so that token may not occur there.
    """
    if not framing.thinking:
        return framing
    tool_call = tokens.control_id(TOOL_CALL)
    return replace(framing, separator="", never=() if tool_call is None else (tool_call,))
