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

from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

from tests.oracles.soak_languages import SOAK_LANGUAGES, SoakLanguage

MAX_TOKENS = 200
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
    wrong: list[str] = field(default_factory=list)


class Load:
    """Streams against one server, from one event loop."""

    def __init__(self, url: str, *, stop: int, seed: int = 0, model: str = "tiny") -> None:
        """Prepare; ``stop`` is the id of a stop token of the model."""
        self.tally = Tally()
        self._source = random.Random(seed)
        self._model = model
        self._stop = stop
        self._client = AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            max_retries=0,
            timeout=600,
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        )
        # Every kind of job with its share.
        self._jobs: tuple[tuple[float, str, Callable[[], Awaitable[None]]], ...] = (
            (0.62, "stream", self._stream),
            (0.14, "new constraint", self._new_constraint),
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
                self.tally.wrong.append(f"{names[index]}: {type(error).__name__}: {error}"[:500])

    async def _stream(self) -> None:
        language = self._source.choice(SOAK_LANGUAGES)
        await self._judged(language, language.name, n=self._source.choice((1, 1, 1, 2)))

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
        await self._judged(language, "new choice", n=1)

    async def _judged(self, language: SoakLanguage, name: str, *, n: int) -> None:
        texts, reasons, records = [""] * n, [""] * n, [None] * n
        arrived = committed = 0
        async for chunk in await self._create({language.field: language.value}, n=n):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                arrived += len(getattr(choice, "token_ids", None) or ())
                if choice.finish_reason is not None:
                    reasons[choice.index] = choice.finish_reason
                    records[choice.index] = getattr(choice, "constraint", None)
            if chunk.usage is not None:
                committed = chunk.usage.completion_tokens
        self.tally.lost += abs(committed - arrived)
        self.tally.tokens += committed
        for text, reason, record in zip(texts, reasons, records, strict=True):
            self.tally.outputs += 1
            self.tally.ended[name] += 1
            if complaint := _complaint(language, text, reason, record):
                self.tally.wrong.append(f"{language.name}: {complaint}: {reason} {text!r}"[:500])

    async def _free(self) -> None:
        async for chunk in await self._create(None, max_tokens=30):
            for choice in chunk.choices:
                if choice.finish_reason is not None and hasattr(choice, "constraint"):
                    self.tally.wrong.append("free text has a record of a constraint")
        self.tally.outputs += 1
        self.tally.ended["free text"] += 1

    async def _leave(self) -> None:
        """The client goes away in the middle; what it has read until then was right."""
        language = self._source.choice(SOAK_LANGUAGES)
        wanted, text = self._source.randrange(1, 12), ""
        stream = await self._create({language.field: language.value})
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                wanted -= 1
            if wanted <= 0 or not chunk.choices:
                break
        await stream.close()
        self.tally.faults["client left"] += 1
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
        try:
            await self._create(structured, stream=False, max_tokens=20)
            status = 200
        except APIStatusError as error:
            status = error.status_code
        if status not in statuses:
            self.tally.wrong.append(f"{name}: {structured} ended with {status}"[:500])

    async def _create(self, structured: dict[str, Any] | None, **fields: Any) -> Any:
        body = {**NO_THINKING, "return_token_ids": True}
        if structured is not None:
            body["structured_outputs"] = structured
        if fields.setdefault("stream", True):
            fields["stream_options"] = {"include_usage": True}
        return await self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": f"Write something: {self._source.random()}"}],
            max_tokens=fields.pop("max_tokens", MAX_TOKENS),
            temperature=self._source.choice((0.7, 1.0, 1.3)),
            extra_body=body,
            **fields,
        )


def _complaint(language: SoakLanguage, text: str, reason: str, record: dict[str, Any] | None) -> str | None:
    """What is wrong with one output, if anything."""
    if record is None:
        return "no record"
    if reason == "stop":
        if not language.member(text):
            return "not in the language"
        return None if record["complete"] and record["terminated"] else f"the record is {record}"
    if reason != "length":
        return "a strange end"
    if not language.prefix(text.rstrip("\ufffd")):
        return "does not begin anything in the language"
    return "it did not end by itself" if record["terminated"] else None
