"""Mixed load for a real server: constrained streams of every kind with faults among them, each judged by itself.

An output counts as right if an independent oracle finds its text in the language, or, where it was cut, to begin
something in it; if its record agrees with how it ended; and if no token was lost: what the stream brought adds up to
what the server says it committed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from anthropic import AsyncAnthropic
from jsonschema import Draft202012Validator
from openai import DEFAULT_CONNECTION_LIMITS, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

from benchmarks import server_streams
from benchmarks.server_streams import Answer, Streamed
from tests.oracles.soak_languages import SOAK_LANGUAGES, SoakLanguage

MAX_TOKENS = 200
REFUSED = 400
FILLER = "river tree " * 280
"""Nearly a block of the KV cache: an output grows into a second one, for which another request may be preempted."""
LONG_PROMPTS = 0.06
"""Their share."""
LIMITS = type(DEFAULT_CONNECTION_LIMITS)(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=2.0)
"""vLLM closes a connection that was idle for 5 seconds. A client that keeps one as long may send a request into it."""
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
BAD: tuple[dict[str, Any], ...] = (
    {"regex": "(a"},
    {"json": {"foo": 1}},
    {"grammar": "root ::= x"},
    {"choice": []},
    {"json": {"$ref": "https://example.com/schema.json"}},
)
TOO_MUCH: tuple[dict[str, Any], ...] = (
    {"regex": "((a{0,300}){0,300}){0,300}b"},
    {"grammar": 'root ::= root root | "a" | "a" root'},
    {"json": {"allOf": [{"anyOf": [{"const": [i, j]} for i in range(30)]} for j in range(30)]}},
)
"""Constraints that cost as much as the limits let them: refused or enforced, and nobody else's business."""


TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "book",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"seats": {"type": "integer", "minimum": 1, "maximum": 9}, "row": {"enum": ["a", "b", "c"]}},
            "required": ["seats", "row"],
            "additionalProperties": False,
        },
    },
    {
        "name": "cancel",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"reason": {"type": "string", "maxLength": 12}, "final": {"type": "boolean"}},
            "required": ["final"],
            "additionalProperties": False,
        },
    },
)


@dataclass
class Tally:
    """What a load did, and what was wrong with it."""

    outputs: int = 0
    tokens: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Judged outputs by kind of job."""
    faults: Counter[str] = field(default_factory=Counter)
    """Faults that were injected, by kind."""
    lost: int = 0
    """Committed tokens that did not arrive."""
    due: int = 0
    """Constrained outputs that the server should have counted, those of clients that left among them."""
    refused: int = 0
    """Constraints that were refused with HTTP 400."""
    wrong: list[str] = field(default_factory=list)


class Load:
    """Streams against one server, from one event loop."""

    def __init__(self, url: str, *, stop: int, seed: int = 0, model: str = "tiny") -> None:
        """Prepare; ``stop`` is the id of a stop token of the model."""
        self.tally = Tally()
        self._source = random.Random(seed)
        self._model = model
        self._stop = stop
        options: dict[str, Any] = {
            "api_key": "none",
            "max_retries": 0,
            "timeout": 600,
            "http_client": DefaultAsyncHttpxClient(trust_env=False, limits=LIMITS),
        }
        self._client = AsyncOpenAI(base_url=f"{url}/v1", **options)
        self._claude = AsyncAnthropic(base_url=url, **options)
        # Every kind of job with its share.
        self._jobs: tuple[tuple[float, str, Callable[[], Awaitable[None]]], ...] = (
            (0.30, "stream", self._stream),
            (0.10, "behind reasoning", self._reasoning),
            (0.10, "call", self._call),
            (0.08, "Responses", self._responses),
            (0.08, "Messages", self._messages),
            (0.10, "new constraint", self._new_constraint),
            (0.08, "free text", self._free),
            (0.07, "client leaves", self._leave),
            (0.05, "bad constraint", self._bad),
            (0.02, "expensive constraint", self._too_much),
            (0.02, "dead end", self._dead_end),
        )

    async def run(self, streams: int, seconds: float) -> Tally:
        """Keep ``streams`` jobs going for a time; those that run then are waited for."""
        until = perf_counter() + seconds
        await asyncio.gather(*(self._worker(until) for _ in range(streams)))
        await self._client.close()
        return self.tally

    async def _worker(self, until: float) -> None:
        shares, names, jobs = zip(*self._jobs, strict=True)
        while perf_counter() < until and len(self.tally.wrong) < 20:
            (index,) = self._source.choices(range(len(jobs)), shares)
            try:
                await jobs[index]()
            except Exception as error:
                self.tally.wrong.append(f"{names[index]}: {_said(error)}"[:500])

    async def _stream(self) -> None:
        language = self._source.choice(SOAK_LANGUAGES)
        await self._judged(language, language.name, await self._chat(language, n=self._source.choice((1, 1, 1, 2))))

    async def _new_constraint(self) -> None:
        """One that nobody had: it is compiled, and pushes others out of the cache."""
        words = ["".join(self._source.choices("abcdefghij", k=9)) for _ in range(40)]
        known = set(words)
        language = SoakLanguage(
            "new choice",
            "choice",
            words,
            known.__contains__,
            lambda text: any(word.startswith(text) for word in words),
            exact_prefix=True,
        )
        await self._judged(language, "new choice", await self._chat(language))

    async def _reasoning(self) -> None:
        """Reasoning that its budget ends, and a constraint behind it."""
        language = self._source.choice(SOAK_LANGUAGES)
        body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 30}
        await self._judged(language, "behind reasoning", await self._chat(language, body))

    async def _responses(self) -> None:
        language = self._source.choice(SOAK_LANGUAGES)
        request = {
            "input": self._prompt(),
            "max_output_tokens": MAX_TOKENS,
            "extra_body": {**NO_THINKING, "structured_outputs": _constraint(language)},
        }
        answer = await server_streams.responses(self._client, {**self._common(), **request})
        await self._judged(language, "Responses", answer)

    async def _messages(self) -> None:
        language = self._source.choice(SOAK_LANGUAGES)
        request: dict[str, Any] = {
            "messages": [{"role": "user", "content": self._prompt()}],
            "max_tokens": MAX_TOKENS,
            "extra_body": {"thinking": {"type": "disabled"}, "structured_outputs": _constraint(language)},
        }
        common = self._common()
        request["extra_body"]["temperature"] = common.pop("temperature")  # this client has no word for it
        answer = await server_streams.messages(self._claude, {**common, **request})
        await self._judged(language, "Messages", answer)

    async def _call(self) -> None:
        """A forced call of one of two tools."""
        fields = {
            "tools": [{"type": "function", "function": tool} for tool in TOOLS],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "messages": [{"role": "user", "content": "Write something."}],  # the tools take half of the context
        }
        answer = await server_streams.chat(self._client, self._request(None, NO_THINKING, **fields))
        self._count(answer, "call")
        for output in answer.outputs:
            if complaint := complaint_of_call(output):
                self.tally.wrong.append(f"call: {complaint}: {output}"[:500])

    async def _chat(self, language: SoakLanguage, body: dict[str, Any] = NO_THINKING, *, n: int = 1) -> Answer:
        return await server_streams.chat(self._client, self._request(_constraint(language), body, n=n))

    async def _judged(self, language: SoakLanguage, name: str, answer: Answer) -> None:
        self._count(answer, name)
        for output in answer.outputs:
            if complaint := complaint_of(language, output):
                self.tally.wrong.append(f"{name}: {language.name}: {complaint}: {output}"[:500])

    def _count(self, answer: Answer, name: str) -> None:
        if answer.arrived is not None:
            self.tally.lost += abs(answer.tokens - answer.arrived)
        self.tally.tokens += answer.tokens
        self.tally.outputs += len(answer.outputs)
        self.tally.due += len(answer.outputs)
        self.tally.ended[name] += len(answer.outputs)

    async def _free(self) -> None:
        async for chunk in await self._client.chat.completions.create(**self._request(None, max_tokens=30)):
            for choice in chunk.choices:
                if choice.finish_reason is not None and hasattr(choice, "constraint"):
                    self.tally.wrong.append("free text has a record of a constraint")
        self.tally.outputs += 1
        self.tally.ended["free text"] += 1

    async def _leave(self) -> None:
        """The client goes away in the middle; what it has read until then was right."""
        language = self._source.choice(SOAK_LANGUAGES)
        wanted, text = self._source.randrange(1, 12), ""
        stream = await self._client.chat.completions.create(**self._request(_constraint(language)))
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                wanted -= 1
            if wanted <= 0 or not chunk.choices:
                break
        await stream.close()
        self.tally.faults["client left"] += 1
        self.tally.due += 1
        begins = text.rstrip("\ufffd")
        if not (language.prefix(begins) or language.member(text)):
            self.tally.wrong.append(f"{language.name}: before the client left: {text!r}"[:500])

    async def _bad(self) -> None:
        await self._refused(self._source.choice(BAD), {400}, "bad constraint")

    async def _too_much(self) -> None:
        await self._refused(self._source.choice(TOO_MUCH), {200, 400}, "expensive constraint")

    async def _dead_end(self) -> None:
        """A stop token in the middle of the content, which nothing may write."""
        elements = [{"type": "const_string", "value": "aaaa"}, {"type": "token", "token": self._stop}]
        tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
        await self._refused({"structural_tag": json.dumps(tag)}, {422}, "dead end")

    async def _refused(self, structured: dict[str, Any], statuses: set[int], name: str) -> None:
        self.tally.faults[name] += 1
        request = self._request(structured, max_tokens=20, stream=False)
        del request["stream_options"]
        try:
            await self._client.chat.completions.create(**request)
            status = 200
        except APIStatusError as error:
            status = error.status_code
        if status == REFUSED:
            self.tally.refused += 1
        else:
            self.tally.due += 1
        if status not in statuses:
            self.tally.wrong.append(f"{name}: {structured} ended with {status}"[:500])

    def _request(
        self, structured: dict[str, Any] | None, body: dict[str, Any] = NO_THINKING, **fields: Any
    ) -> dict[str, Any]:
        """A streamed Chat request with these fields."""
        constraint = {} if structured is None else {"structured_outputs": structured}
        return {
            **self._common(),
            "messages": [{"role": "user", "content": self._prompt()}],
            "max_tokens": MAX_TOKENS,
            "stream_options": {"include_usage": True},
            "extra_body": {**body, **constraint, "return_token_ids": True},
            **fields,
        }

    def _common(self) -> dict[str, Any]:
        return {"model": self._model, "stream": True, "temperature": self._source.choice((0.7, 1.0, 1.3))}

    def _prompt(self) -> str:
        long = self._source.random() < LONG_PROMPTS
        return f"{FILLER if long else ''}Write something: {self._source.random()}"


def _constraint(language: SoakLanguage) -> dict[str, Any]:
    return {language.field: language.value}


def _said(error: BaseException) -> str:
    """An error with its causes: a client's own words say little of what happened to its connection."""
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return " < ".join(causes)


def complaint_of_call(output: Streamed) -> str | None:
    """What is wrong with a forced call, if anything."""
    record = output.record
    if record is None:
        return "no record"
    if output.text:
        return "text beside a forced call"
    if record["kind"] != "tools":
        return f"the record is {record}"
    if output.reason == "length":
        return "it did not end by itself" if record["terminated"] else None
    if output.reason != "tool_calls" or len(output.calls) != 1:
        return "a strange end"
    ((name, arguments),) = output.calls
    tool = next((tool for tool in TOOLS if tool["name"] == name), None)
    try:
        legal = tool is not None and Draft202012Validator(tool["parameters"]).is_valid(json.loads(arguments))
    except ValueError:
        legal = False
    if not legal:
        return "arguments that the tool does not take"
    ended = record["complete"] and record["terminated"] and record["branch"] == "tools"
    return None if ended else f"the record is {record}"


def complaint_of(language: SoakLanguage, output: Streamed) -> str | None:
    """What is wrong with one output, if anything."""
    text, record = output.text, output.record
    if record is None:
        return "no record"
    if output.reason == "stop":
        if not language.member(text):
            return "not in the language"
        ended = record["complete"] and record["terminated"] and record["branch"] == "content"
        return None if ended else f"the record is {record}"
    if output.reason != "length":
        return "a strange end"
    if not language.prefix(text.rstrip("\ufffd")):
        return "does not begin anything in the language"
    return "it did not end by itself" if record["terminated"] else None
