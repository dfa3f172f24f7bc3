"""Whether an output became content or calls: known by its first token behind the framing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from infernix_plugin.framing.phases import Framing
from infernix_plugin.framing.tools.markup import CALL_OPEN


class Branch(StrEnum):
    """What an output has become so far."""

    UNDECIDED = "undecided"
    """Still in its framing: reasoning, the separator, or nothing at all."""
    CONTENT = "content"
    TOOLS = "tools"
    """A call was opened, whether or not text stands before it."""


class Vocabulary(Protocol):
    """What a token domain knows of its tokens."""

    def token_bytes(self, token: int) -> bytes:
        """What a token writes."""

    def control_id(self, text: str) -> int | None:
        """The id of a control token."""

    def is_stop(self, token: int) -> bool:
        """Whether the token ends an output."""


class BranchObserver:
    """Follows the committed tokens of one output. A continued prefix takes part."""

    def __init__(self, framing: Framing, vocabulary: Vocabulary, *, calls: bool, prefix: str = "") -> None:
        """Begin where the prompt left off.

        Args:
            framing: the phase in which the output begins.
            vocabulary: the model's.
            calls: whether the token ``<tool_call>`` opens a call in this output.
            prefix: content that is already written.
        """
        self._vocabulary = vocabulary
        self._close = framing.close_id
        self._call_open = vocabulary.control_id(CALL_OPEN) if calls else None
        self._in_reasoning = framing.thinking
        self._separator_left = len(framing.separator.encode()) if framing.thinking else 0
        self.branch = Branch.UNDECIDED
        if prefix:
            self.branch = Branch.TOOLS if calls and CALL_OPEN in prefix else Branch.CONTENT

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in what the output goes on with."""
        if self.branch is Branch.TOOLS or (self.branch is Branch.CONTENT and self._call_open is None):
            return
        for token in tokens:
            if self._in_reasoning:
                self._in_reasoning = token != self._close
            elif token == self._call_open:
                self.branch = Branch.TOOLS
            elif not self._vocabulary.is_stop(token):
                self._separator_left -= len(self._vocabulary.token_bytes(token))
                if self._separator_left < 0 and self.branch is Branch.UNDECIDED:
                    self.branch = Branch.CONTENT
