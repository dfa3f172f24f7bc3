"""One constrained request in the plain HTTP of every endpoint that generates, and how each of its choices ended."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

MESSAGES = [{"role": "user", "content": "q"}]
FINISH = {"end_turn": "stop", "max_tokens": "length", "completed": "stop", "incomplete": "length"}
"""Messages' and Responses' words for a finish reason, in those of Chat."""


@dataclass
class Ended:
    """What an answer says: ``choices`` by index, with the finish reason and the record; or its error."""

    status: int
    choices: dict[int, tuple[str, dict[str, Any] | None]] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    text: str = ""
    """Everything that came."""

    def read(self, body: dict[str, Any]) -> None:
        """Take in an answer or one event of it. A choice may finish once, and its record comes with that."""
        if body.get("type") == "error" and "message" in body:
            self.error = body  # an event of Responses
        elif body.get("error"):
            self.error = body["error"]
        for index, reason, record in _finished(body):
            assert index not in self.choices, "a choice finishes twice"
            self.choices[index] = (reason, record)


def _finished(body: dict[str, Any]) -> Iterator[tuple[int, str, dict[str, Any] | None]]:
    for choice in body.get("choices", ()):
        if choice.get("finish_reason") is not None:
            yield choice["index"], choice["finish_reason"], choice.get("constraint")
        else:
            assert choice.get("constraint") is None, "a record before the end"
    message = body.get("delta", body) if body.get("type") in ("message", "message_delta") else {}
    if message.get("stop_reason") is not None:
        yield 0, FINISH[message["stop_reason"]], body.get("constraint")
    response = body.get("response", body)
    if response.get("object") == "response" and response["status"] in FINISH:
        yield 0, FINISH[response["status"]], response.get("constraint")


@dataclass(frozen=True)
class Endpoint:
    """A path, and the body of a request with a constraint; ``outputs`` is how many choices it asks for."""

    path: str
    body: Callable[[dict[str, Any], int, bool], dict[str, Any]]
    """Of the fields of ``structured_outputs``, the most tokens, and whether the model reasons before the content."""
    outputs: int = 1
    streams: bool = True
    is_conversation: bool = True


def _chat(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    template = {"chat_template_kwargs": {"enable_thinking": thinking}}
    return {"messages": MESSAGES, "max_tokens": tokens, "structured_outputs": structured, **template}


def _several(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    return _chat(structured, tokens, thinking) | {"n": 3}


def _batch(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    return _chat(structured, tokens, thinking) | {"messages": [MESSAGES, MESSAGES]}


def _completions(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    return {"prompt": ["q", "r"], "n": 2, "max_tokens": tokens, "structured_outputs": structured}


def _responses(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    template = {"chat_template_kwargs": {"enable_thinking": thinking}}
    return {"input": "q", "max_output_tokens": tokens, "structured_outputs": structured, **template}


def _messages(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    switch = {} if thinking else {"thinking": {"type": "disabled"}}
    return {"messages": MESSAGES, "max_tokens": tokens, "structured_outputs": structured, **switch}


def _tokens(structured: dict[str, Any], tokens: int, thinking: bool) -> dict[str, Any]:
    sampling = {"n": 2, "max_tokens": tokens, "structured_outputs": structured}
    return {"token_ids": [5, 6, 7], "sampling_params": sampling}


ENDPOINTS = {
    "chat": Endpoint("/v1/chat/completions", _chat),
    "chat n=3": Endpoint("/v1/chat/completions", _several, outputs=3),
    "chat batch": Endpoint("/v1/chat/completions/batch", _batch, outputs=2, streams=False),
    "completions": Endpoint("/v1/completions", _completions, outputs=4, is_conversation=False),
    "responses": Endpoint("/v1/responses", _responses),
    "messages": Endpoint("/v1/messages", _messages),
    "tokens": Endpoint("/inference/v1/generate", _tokens, outputs=2, is_conversation=False),
}
BOTH = [
    (name, stream)
    for name, endpoint in ENDPOINTS.items()
    for stream in ((False, True) if endpoint.streams else (False,))
]
"""Every endpoint, whole and streamed."""


def send(url: str, name: str, structured: dict[str, Any], *, stream: bool, tokens: int = 60, **more: Any) -> Ended:
    """Send a request and read its answer. ``thinking`` says whether to reason, other names are further fields."""
    endpoint = ENDPOINTS[name]
    thinking = more.pop("thinking", False)
    body = {"model": "tiny", "stream": stream, **endpoint.body(structured, tokens, thinking), **more}
    answer = httpx.post(f"{url}{endpoint.path}", json=body, timeout=300, trust_env=False)
    ended = Ended(answer.status_code, text=answer.text)
    if not answer.headers["content-type"].startswith("text/event-stream"):
        ended.read(answer.json())
        return ended
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            ended.read(json.loads(line.removeprefix("data: ")))
    return ended


def running(server: Any) -> float:
    """Return how many outputs the engines of a server write now."""
    return _gauge(server, "vllm:num_requests_running")


def waiting(server: Any) -> float:
    """Return how many outputs wait for the others."""
    return _gauge(server, "vllm:num_requests_waiting")


def _gauge(server: Any, name: str) -> float:
    found = re.findall(rf"^{name}\{{.*\}} (\S+)$", server.metrics_text(), re.MULTILINE)
    return sum(map(float, found))
