"""Reads an output, token by token, back into reasoning, content and calls.

It knows an output's phases the way the grammar does: control tokens by id, everything else by its bytes. A stream and
an aggregate are read by the same reader, so they cannot differ.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from infernix_plugin.framing.events import ArgumentsText, CallEnded, CallStarted, ContentText, Event, ReasoningText
from infernix_plugin.framing.phases import THINK_CLOSE, Framing
from infernix_plugin.framing.tools.call_reader import CallEncodings, CallReader, NotACall, UnreadableCall
from infernix_plugin.framing.tools.markup import CALL_CLOSE, CALL_OPEN


class Vocabulary(Protocol):
    """What the reader needs of a token domain."""

    def token_bytes(self, token: int) -> bytes:
        """What a token writes."""

    def control_id(self, text: str) -> int | None:
        """The id of a control token."""

    def is_control(self, token: int) -> bool:
        """Whether the token, which may be any integer, is a control token."""

    def is_stop(self, token: int) -> bool:
        """Whether the token, which may be any integer, ends an output."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """What an output may consist of.

    Attributes:
        framing: the phase in which it begins.
        functions: what may be called, by name; none where calls are not read.
        enforced: whether a grammar made the output, so that any other form is a fault of ours.
        content_is_free: whether text that is no call may stand before calls.
    """

    framing: Framing
    functions: Mapping[str, CallEncodings] = field(default_factory=dict)
    enforced: bool = False
    content_is_free: bool = True


class _Phase(Enum):
    REASONING = auto()
    SEPARATOR = auto()
    CONTENT = auto()
    CALL = auto()
    BEHIND_CALL = auto()
    OVER = auto()


_PROSE = (_Phase.SEPARATOR, _Phase.CONTENT)


class OutputReader:
    """One output. Not thread-safe."""

    def __init__(self, form: OutputForm, vocabulary: Vocabulary) -> None:
        """Begin where the prompt left off."""
        self._form = form
        self._vocabulary = vocabulary
        self._think_close = vocabulary.control_id(THINK_CLOSE)
        call_open, self._call_close = vocabulary.control_id(CALL_OPEN), vocabulary.control_id(CALL_CLOSE)
        self._call_open = call_open if form.functions else None
        self._call_markers = {call_open, self._call_close}
        self._phase = _Phase.REASONING if form.framing.thinking else _Phase.CONTENT
        self._decoder = _utf8()
        self._held = ""  # text at the end of a phase that may turn out to belong to its form
        self._call: CallReader | None = None
        self._opened_in = self._phase
        self._calls = 0
        self._events: list[Event] = []

    def feed(self, tokens: Iterable[int]) -> list[Event]:
        """Read more tokens; returns what they say. What follows a stop token is not read.

        Raises:
            UnreadableCall: an enforced output does not have the form that was enforced.
        """
        for token in tokens:
            if self._phase is _Phase.OVER:
                break
            if self._vocabulary.is_stop(token):
                self._end(stopped=True)
            elif self._vocabulary.is_control(token):
                self._text(self._undecoded())
                self._control(token)
            else:
                self._text(self._decoder.decode(self._vocabulary.token_bytes(token)))
        return self._said()

    def go_on_from(self, tokens: Iterable[int]) -> None:
        """Read content that was written before; of it, only a call that it leaves open is published again."""
        read = self.feed(tokens)
        self._events = [event for event in read if isinstance(event, CallStarted | ArgumentsText)]
        if self._phase is _Phase.CONTENT:
            self._held = ""

    def finish(self) -> list[Event]:
        """The output is over, at a limit if no stop token was read; returns what was held back."""
        if self._phase is not _Phase.OVER:
            self._end(stopped=False)
        return self._said()

    def _said(self) -> list[Event]:
        events, self._events = _joined(self._events), []
        return events

    def _undecoded(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text

    # Tokens -----------------------------------------------------------------------------------------------------

    def _control(self, token: int) -> None:
        if self._phase is _Phase.CALL:
            self._control_in_call(token)
        elif self._phase is _Phase.REASONING and token == self._think_close:
            self._held = ""
            self._phase = _Phase.SEPARATOR
        elif token == self._call_open and not (self._phase is _Phase.REASONING and self._form.enforced):
            self._open_call()
        elif self._phase is _Phase.REASONING or (self._phase in _PROSE and token in self._call_markers):
            self._text(self._spelling(token))  # prose about calls
        # Elsewhere the remaining control tokens are form, or what a model without constraint writes in vain.

    def _control_in_call(self, token: int) -> None:
        if self._form.enforced:
            raise UnreadableCall(f"the control token {token} stands inside an enforced call")
        if token == self._call_close:
            self._close_call()
        else:
            self._text(self._spelling(token))

    def _spelling(self, token: int) -> str:
        return self._vocabulary.token_bytes(token).decode(errors="replace")

    # Text -------------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        if not text:
            return
        match self._phase:
            case _Phase.REASONING:
                text = self._held + text
                self._publish(text, text.removesuffix("\n"), ReasoningText)
            case _Phase.SEPARATOR:
                self._separate(self._held + text)
            case _Phase.CONTENT:
                text = self._held + text
                may_be_form = self._call_open is not None and self._form.content_is_free
                self._publish(text, text.rstrip("\n") if may_be_form else text, ContentText)
            case _Phase.CALL:
                self._text_in_call(text)
            case _Phase.BEHIND_CALL:
                self._behind_call(self._held + text)

    def _publish(self, text: str, certain: str, kind: type[ReasoningText | ContentText]) -> None:
        self._held = text[len(certain) :]
        if certain:
            self._events.append(kind(certain))

    def _separate(self, text: str) -> None:
        separator = self._form.framing.separator
        if separator.startswith(text) and text != separator:
            self._held = text
            return
        self._held = ""
        self._phase = _Phase.CONTENT
        self._text(text.removeprefix(separator) if self._form.enforced else text.lstrip("\n"))

    def _behind_call(self, text: str) -> None:
        if self._call_close is None:  # then the end is spelled
            closing = text.lstrip("\n")
            text = closing.removeprefix(CALL_CLOSE) if closing.startswith(CALL_CLOSE) else text
            if CALL_CLOSE.startswith(closing):
                self._held = text
                return
        self._held = text
        if not text.strip():
            return
        if self._form.enforced:
            raise UnreadableCall("text stands behind an enforced call")
        self._held = ""
        self._phase = _Phase.CONTENT
        self._text(text)

    # Calls ------------------------------------------------------------------------------------------------------

    def _open_call(self) -> None:
        self._call = CallReader(self._form.functions, enforced=self._form.enforced)
        self._opened_in = self._phase
        self._phase = _Phase.CALL

    def _text_in_call(self, text: str) -> None:
        call = self._call
        assert call is not None
        unnamed = call.name is None
        try:
            arguments = call.feed(text)
        except NotACall as plain:
            self._was_no_call(plain.text)
            return
        if unnamed and call.name is not None:
            self._held = ""
            self._events.append(CallStarted(self._calls, call.name))
        self._more_arguments(arguments)
        if call.ended:
            self._end_call()
            self._text(call.rest)

    def _more_arguments(self, text: str) -> None:
        if text:
            self._events.append(ArgumentsText(self._calls, text))

    def _end_call(self) -> None:
        self._events.append(CallEnded(self._calls))
        self._calls += 1
        self._call = None
        self._phase = _Phase.BEHIND_CALL

    def _close_call(self) -> None:
        """A free call stops before its end."""
        assert self._call is not None
        try:
            self._more_arguments(self._call.close())
        except NotACall as plain:
            self._was_no_call(plain.text)
            return
        self._end_call()

    def _was_no_call(self, text: str) -> None:
        self._call = None
        # Behind a call there is only text again; in the reasoning and in the content it goes on.
        self._phase = _Phase.CONTENT if self._opened_in is _Phase.SEPARATOR else self._opened_in
        self._text(CALL_OPEN + text)

    def _end(self, *, stopped: bool) -> None:
        self._text(self._undecoded())
        if self._phase is _Phase.CALL and not self._form.enforced:
            assert self._call is not None
            if stopped or self._call.name is None:
                self._close_call()
        elif self._phase is _Phase.CALL and stopped:
            raise UnreadableCall("an enforced output stopped inside a call")
        if self._held and self._phase in (_Phase.REASONING, _Phase.CONTENT):
            self._events.append((ReasoningText if self._phase is _Phase.REASONING else ContentText)(self._held))
        self._phase = _Phase.OVER


def _utf8() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


def _joined(events: Sequence[Event]) -> list[Event]:
    """The same events with neighbouring texts of one kind in one."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        match last, event:
            case (ReasoningText(before), ReasoningText(text)):
                found[-1] = ReasoningText(before + text)
            case (ContentText(before), ContentText(text)):
                found[-1] = ContentText(before + text)
            case (ArgumentsText(index, before), ArgumentsText(same, text)) if index == same:
                found[-1] = ArgumentsText(index, before + text)
            case _:
                found.append(event)
    return found
