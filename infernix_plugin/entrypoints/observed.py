"""The record of each constrained output on its way into the response: the field ``constraint`` of every protocol.

vLLM's serving code makes a response from the outputs of the engine, and has no place for what else is known of them. A
:class:`Watch` looks at the outputs as they pass, and adds their records to what was made of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from infernix_plugin.errors import InfernixError
from infernix_plugin.structured_output.record import Record

FIELD = "constraint"
"""The attribute of a completion, and the field of a choice, a message or a response."""

_DATA = "data: "
_END_OF_MESSAGE = "event: message_delta\n"
_ERROR = "event: error\n"
_FAILED_CHAT = _DATA + '{"error":'


class EmptyEnd(str):
    """The text of an output that ended before it began: empty, but something that is worth sending.

    vLLM sends nothing of a choice while it has neither a token nor text, not even why it ended, as by an abort.
    """

    def __bool__(self) -> bool:
        return True


class Watch:
    """The records of one response that have not been published yet, by the index of their choice."""

    def __init__(
        self, choice_of: Callable[[Any], Iterable[tuple[int, Any]]] | None = None, *, streams: bool = False
    ) -> None:
        """Take ``(index of the choice, completion)`` from each result with ``choice_of``; else results are outputs.

        With ``streams``, an output that ended before its first token is made one that vLLM sends; see `EmptyEnd`.
        """
        self._choices_of = choice_of or (lambda result: [(output.index, output) for output in result.outputs])
        self._records: dict[int, Record] = {}
        self._streams = streams

    @property
    def has_records(self) -> bool:
        """Whether there is anything to publish."""
        return bool(self._records)

    def outputs(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return ``results`` as they are, but each is looked at when it passes."""
        return _Passing(results, self._note)

    def mark(self, choices: Iterable[Any]) -> None:
        """Publish the records in the choices of a whole response or of a chunk, which finish here if they finish."""
        for choice in choices:
            if choice.finish_reason is not None and choice.index in self._records:
                setattr(choice, FIELD, self._records.pop(choice.index))

    def mark_chunk(self, chunk: Any) -> Any:
        """Publish the records in a chunk of a stream, and return it."""
        self.mark(getattr(chunk, "choices", ()))
        return chunk

    def mark_event(self, event: str) -> str:
        """Publish the records in a server-sent event, if a choice with a record finishes in it."""
        if not self._records or not event.startswith(_DATA + "{"):
            return event
        body = json.loads(event[len(_DATA) :])
        finished = False
        for choice in body.get("choices", ()):
            if choice.get("finish_reason") is not None and choice["index"] in self._records:
                choice[FIELD] = self._records.pop(choice["index"])
                finished = True
        return _written(body) if finished else event

    def _note(self, result: Any) -> Any:
        for index, output in self._choices_of(result):
            record = getattr(output, FIELD, None)
            if record is not None:
                self._records[index] = record
                if self._streams and not output.token_ids and not output.text:
                    output.text = EmptyEnd()
        return result


class MessageWatch:
    """The record of one streamed answer of the Messages API, which vLLM makes from the stream of a chat."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._error: dict[str, Any] = {}

    def chunks(self, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return the chat's stream, events (vLLM 0.32) or chunks (0.33), without the records it has."""
        return _Passing(chunks, self._take)

    def mark_event(self, event: str) -> str:
        """Publish the record, or the chat's error, in the event that says why the message ends."""
        if self._error and event.startswith(_ERROR):
            told = {name: self._error[name] for name in ("type", "message")}
            return _ERROR + _written({"type": "error", "error": told})
        if self._record is None or not event.startswith(_END_OF_MESSAGE):
            return event
        body = json.loads(event[len(_END_OF_MESSAGE) + len(_DATA) :])
        body[FIELD], self._record = self._record, None
        return _END_OF_MESSAGE + _written(body)

    def _take(self, chunk: Any) -> Any:
        if isinstance(chunk, str):
            if chunk.startswith(_FAILED_CHAT):  # vLLM 0.32 takes it for a chunk, and complains about its form
                self._error = json.loads(chunk[len(_DATA) :])["error"]
                raise InfernixError(self._error["message"])
            if f'"{FIELD}":' not in chunk:
                return chunk
            body = json.loads(chunk[len(_DATA) :])
            for choice in body["choices"]:
                self._record = choice.pop(FIELD, self._record)
            return _written(body)
        for choice in getattr(chunk, "choices", ()):
            self._record = (choice.model_extra or {}).pop(FIELD, self._record)
        return chunk


class _Passing:
    """An asynchronous iterator that keeps no frame of its own, so that a client who leaves is noticed as before."""

    def __init__(self, results: AsyncIterator[Any], look: Callable[[Any], Any]) -> None:
        self._results = results
        self._look = look

    def __aiter__(self) -> _Passing:
        return self

    async def __anext__(self) -> Any:
        return self._look(await anext(self._results))


def _written(body: dict[str, Any]) -> str:
    return f"{_DATA}{json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
