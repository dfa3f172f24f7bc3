"""What an attack costs everybody else: time per token of ordinary streams, with and without hostile constraints beside.

    python -m benchmarks.neighbours MODEL --page docs/benchmarks/neighbours.md

MODEL is a checkpoint made by `infernix make-tiny-model`. One server, one run: calm and attack take turns, so that
whatever else the machine does falls on both. The attack is the corpus of the tests, `tests/hostile/corpus.py`, each
constraint made new each time so that no refusal and no grammar is remembered.

The clients of the ordinary streams read as if they had a machine of their own: their process runs before all others,
which needs the right to do so. Otherwise a machine of two cores measures how long the clients wait for a turn, and
Linux lets those wait longest who share it with processes that wait for one another in loops, as vLLM's do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient

from infernix_plugin.entrypoints.demo.server import serve
from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from tests.hostile.corpus import FAMILIES
from tests.oracles.soak_languages import SOAK_LANGUAGES

OPTIONS = ("--served-model-name=tiny", "--max-model-len=1024", "--max-num-seqs=64", "--enforce-eager")
STEADY = ("words", "any script", "json_schema", "moves")
"""Languages of the neighbours; half of the streams are free text."""
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
ASK = [{"role": "user", "content": "Write something."}]


def client_of(url: str) -> AsyncOpenAI:
    """Return a client that goes straight to ``url``."""
    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600, http_client=http)


class Neighbours:
    """Ordinary streams, and how long each of them took for a token."""

    def __init__(self, url: str) -> None:
        self.per_token: dict[bool, list[float]] = {False: [], True: []}
        """Seconds of a stream for each of its tokens after the first, calm and under attack."""
        self.first: dict[bool, list[float]] = {False: [], True: []}
        """Seconds to the first token."""
        self.outcomes: Counter[str] = Counter()
        """Hostile requests by how they ended."""
        self._phase = 0
        self._over = False
        self._url = url
        self._client = client_of(url)

    async def run(self, *, rounds: int, seconds: float, streams: int, attackers: int) -> None:
        """Take turns between calm and attack. The attackers are a process of their own, which nobody waits for.

        Raises:
            PermissionError: this process may not run before all others.
        """
        context = multiprocessing.get_context("spawn")
        attacking, outcomes = context.Event(), context.Queue()
        attack = context.Process(target=_attack, args=(self._url, attackers, attacking, outcomes), daemon=True)
        attack.start()
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        languages = [language for language in SOAK_LANGUAGES if language.name in STEADY]
        structured = itertools.cycle([each for one in languages for each in (None, {one.field: one.value})])
        readers = [asyncio.create_task(self._read(next(structured))) for _ in range(streams)]
        await asyncio.sleep(10)  # what is loaded on first use is loaded now
        for _ in range(rounds):
            for attacked in (False, True):
                self._phase += 1
                (attacking.set if attacked else attacking.clear)()
                await asyncio.sleep(seconds)
        self._over = True
        await asyncio.gather(*readers)
        attack.terminate()
        while not outcomes.empty():
            self.outcomes[outcomes.get()] += 1
        await self._client.close()

    async def _read(self, structured: dict[str, Any] | None) -> None:
        body: dict[str, Any] = {**NO_THINKING, "return_token_ids": True}
        if structured is not None:
            body["structured_outputs"] = structured
        while not self._over:
            phase, started, begun, tokens = self._phase, perf_counter(), 0.0, 0
            stream = await self._client.chat.completions.create(
                model="tiny", messages=ASK, max_tokens=60, stream=True, extra_body=body
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    tokens += len(getattr(choice, "token_ids", None) or ())
                if tokens and not begun:
                    begun, before = perf_counter(), tokens
            if phase and phase == self._phase and tokens > before + 5:  # it lay in one phase, and says something
                attacked = phase % 2 == 0
                self.first[attacked].append(begun - started)
                self.per_token[attacked].append((perf_counter() - begun) / (tokens - before))


def _attack(url: str, attackers: int, attacking: Any, outcomes: Any) -> None:
    hostile = _hostile()

    async def one(client: AsyncOpenAI) -> None:
        while True:
            if not attacking.is_set():
                await asyncio.sleep(0.05)
                continue
            body = {**NO_THINKING, "structured_outputs": next(hostile)}
            try:
                await client.chat.completions.create(model="tiny", messages=ASK, max_tokens=5, extra_body=body)
                outcomes.put("enforced")
            except APIError as error:
                outcomes.put(f"HTTP {getattr(error, 'status_code', 'none')}")

    async def run() -> None:
        client = client_of(url)
        await asyncio.gather(*(one(client) for _ in range(attackers)))

    asyncio.run(run())


def _hostile() -> Iterator[dict[str, Any]]:
    """Every constraint of the corpus over and over, in a random order, no two of them equal."""
    source, number = random.Random(0), 0
    makes = [make for family in FAMILIES.values() for make in family.values()]
    while True:
        for make in source.sample(makes, len(makes)):
            number += 1
            try:
                made = _renewed(make(), number)
                json.dumps(made, ensure_ascii=False).encode()
            except (ConstraintError, UnicodeError):  # a request in JSON cannot say it
                continue
            yield made


def _renewed(constraint: OutputConstraint, number: int) -> dict[str, Any]:
    match constraint.kind:
        case ConstraintKind.CHOICE:
            return {"choice": [*constraint.choices, f"{number}"]}
        case ConstraintKind.REGEX:
            return {"regex": f"{constraint.source}|{number}"}
        case ConstraintKind.GRAMMAR:
            return {"grammar": f"{constraint.source}\n# {number}"}
    return {"json": constraint.source + " " * number}


PAGE = """# Neighbours of an attack

Made by `python -m benchmarks.neighbours MODEL` on the tiny checkpoint, `vllm serve` on a CPU, the default settings.
{streams} streams of ordinary requests, half of them constrained, and {attackers} clients that send the hostile
corpus of the tests, one constraint after the other, each a new one. Calm and attack take turns in one run, {rounds}
times {seconds:.0f} seconds each. The time per token is that of a whole stream; {counts} streams were measured.

| | calm | under attack | ratio |
|:--|--:|--:|--:|
{rows}
Hostile requests: {outcomes}.

The machine has {cores} cores, and everything runs on them: the model, the server, the processes that compile, the
clients, those of the attack too, and whatever else was running, on calm and attack alike. Only the clients of the
ordinary streams run before all others (`SCHED_RR`), as if they had a machine of their own. The load average at the end
was {load:.0f}.
"""


def rows(neighbours: Neighbours) -> str:
    """Return the table's rows, times in milliseconds."""
    lines = []
    for name, times in (("time per token", neighbours.per_token), ("time to the first token", neighbours.first)):
        for label, quantile in (("median", 50), ("p99", 99)):
            calm, attacked = (1000 * float(np.percentile(times[side], quantile)) for side in (False, True))
            lines.append(f"| {name}, {label} | {calm:.1f} ms | {attacked:.1f} ms | {attacked / calm:.2f} |\n")
    return "".join(lines)


def main(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint.")],
    rounds: Annotated[int, typer.Option()] = 4,
    seconds: Annotated[float, typer.Option(help="Of each calm and each attack.")] = 30.0,
    streams: Annotated[int, typer.Option()] = 8,
    attackers: Annotated[int, typer.Option()] = 4,
    page: Annotated[Path | None, typer.Option(help="The page to write.")] = None,
) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.log"
        with serve([str(model), *OPTIONS], log=log) as server:
            server.wait_until_healthy(lambda waited: None)
            neighbours = Neighbours(server.url)
            asyncio.run(neighbours.run(rounds=rounds, seconds=seconds, streams=streams, attackers=attackers))
            errors = server.error_lines()
    outcomes = ", ".join(f"{count} x {name}" for name, count in sorted(neighbours.outcomes.items()))
    text = PAGE.format(
        streams=streams,
        attackers=attackers,
        rounds=rounds,
        seconds=seconds,
        rows=rows(neighbours),
        outcomes=outcomes,
        counts=" and ".join(f"{len(neighbours.per_token[attacked])}" for attacked in (False, True)),
        cores=os.cpu_count(),
        load=os.getloadavg()[2],
    )
    print(text, *errors, sep="\n")
    if page is not None:
        page.write_text(text, encoding="utf-8")
    if errors:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
