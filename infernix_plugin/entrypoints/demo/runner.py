"""The course of the demo: which engines, in which order, and what is sent to them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from infernix_plugin.entrypoints.demo.jobs import (
    MISTAKEN_SCHEMA,
    MOODS,
    PERSON_PROMPT,
    PERSON_SCHEMA,
    Job,
    call_jobs,
    jobs,
)
from infernix_plugin.entrypoints.demo.process_group import ProcessGroup, ended_by_signals
from infernix_plugin.entrypoints.demo.progress import under_way
from infernix_plugin.entrypoints.demo.report import Answer, Refusal, Report
from infernix_plugin.entrypoints.demo.server import (
    DraftCounts,
    EngineError,
    ServerProcess,
    command_line,
    engine_environment,
    serve,
)
from infernix_plugin.errors import InfernixError

if TYPE_CHECKING:
    from openai import OpenAI

OFFLINE_SECONDS = 300
REQUEST_SECONDS = 120
COLUMNS_WITHOUT_TERMINAL = 150

_SMALL_ENGINE = {
    "served_model_name": "demo",
    "dtype": "bfloat16",
    "enforce_eager": True,
    "max_model_len": 1024,
    "max_num_seqs": 8,
}
_REAL_ENGINE: dict[str, Any] = _SMALL_ENGINE | {
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    },
}
_TINY_ENGINE: dict[str, Any] = _SMALL_ENGINE | {
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
}


@dataclass(frozen=True)
class DemoOptions:
    """What the command line may ask for."""

    keep: bool = False
    tiny_only: bool = False
    port: int | None = None


@dataclass(frozen=True)
class Engine:
    """A model to serve, how, and how to sample from it."""

    title: str
    model: Path
    options: dict[str, Any]
    temperature: float
    has_calls: bool = False
    """Whether the model has Qwen's form of tool calls."""


def run(options: DemoOptions) -> int:
    """Run the demo and return the exit code: 0 only if everything was right.

    Raises:
        InfernixError: something is missing, or an engine did not start. Nothing is left running.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=COLUMNS_WITHOUT_TERMINAL)
    started = time.monotonic()
    with ended_by_signals():
        problems = _Demo(console, options).run()
    console.print(f"Total time {time.monotonic() - started:.0f} s.")
    for problem in problems:
        console.print(f"[red]wrong:[/] {escape(problem)}", soft_wrap=True)
    console.print("[red]Something was wrong.[/]" if problems else "[green]Everything was right.[/]")
    return 1 if problems else 0


def cache_directory() -> Path:
    """Return where the demo keeps its checkpoints and logs: ``infernix`` in the user's cache directory (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "infernix"


class _Demo:
    """The engines, one after the other; the one that ``--keep`` leaves running comes last."""

    def __init__(self, console: Console, options: DemoOptions) -> None:
        self._console = console
        self._options = options
        self._cache = cache_directory()
        self._logs = self._cache / "logs"

    def run(self) -> list[str]:
        self._logs.mkdir(parents=True, exist_ok=True)
        tiny = Engine(
            "A tiny Qwen3.5: vllm serve, MTP with 3 draft tokens, temperature 1",
            self._tiny_model(),
            _TINY_ENGINE,
            temperature=1.0,
            has_calls=True,
        )
        engines = [tiny]
        if not self._options.tiny_only and (model := self._real_model()) is not None:
            title = "SmolLM2-135M-Instruct: vllm serve, n-gram speculation with 4 draft tokens, greedy"
            engines.insert(0, Engine(title, model, _REAL_ENGINE, temperature=0.0))
        kept = engines[0] if self._options.keep else None
        engines.sort(key=lambda engine: engine is kept)

        problems: list[str] = []
        for engine in engines:
            if engine is tiny:
                problems += self._offline(engine)
            problems += self._online(engine, keep=engine is kept)
        return problems

    def _tiny_model(self) -> Path:
        from infernix_plugin.model_executor.tiny import make_tiny_model

        directory = self._cache / "tiny-qwen3.5"
        with self._console.status("making the tiny model") as status:
            make_tiny_model(directory, report=lambda line: status.update(f"the tiny model: {line}"))
        self._console.print(f"The tiny Qwen3.5 checkpoint is in {directory}.", soft_wrap=True)
        return directory

    def _real_model(self) -> Path | None:
        from infernix_plugin.model_executor.demo_model import get_demo_model

        directory = self._cache / "smollm2-135m-instruct"
        try:
            with self._console.status("fetching the real model") as status:
                get_demo_model(directory, report=lambda line: status.update(f"the real model: {line}"))
        except (InfernixError, ImportError, OSError) as error:
            self._console.print(f"[yellow]No real model, going on with the tiny one:[/] {escape(str(error))}")
            return None
        self._console.print(f"The SmolLM2-135M-Instruct checkpoint is in {directory}.", soft_wrap=True)
        return directory

    def _online(self, engine: Engine, *, keep: bool) -> list[str]:
        """Every job through a server."""
        report = Report(engine.title)
        log = self._logs / f"serve-{engine.model.name}.log"
        arguments = [str(engine.model), *command_line(engine.options)]
        with serve(arguments, log=log, port=self._options.port, keep=keep) as server:
            self._wait(server)
            with self._console.status("sending requests") as status:
                _send_everything(server, engine, report, lambda line: status.update(f"sending requests: {line}"))
            for line in server.error_lines():
                report.problem(f"the server logged an error: {line}")
        self._console.print(report.table())
        if keep:
            self._console.print(_how_to_go_on(server), soft_wrap=True, highlight=False)
        return report.problems

    def _wait(self, server: ServerProcess) -> None:
        started = time.monotonic()
        self._console.print(f"Starting vllm serve at {server.url}, log in {server.log} ...", soft_wrap=True)
        with under_way(self._console, "starting vllm serve") as passed:
            server.wait_until_healthy(passed)
        self._console.print(f"It is healthy after {time.monotonic() - started:.0f} s.")

    def _offline(self, engine: Engine) -> list[str]:
        """Every job in one batch through ``LLM.generate``."""
        report = Report("A tiny Qwen3.5: LLM.generate, all jobs in one batch, MTP with 3 draft tokens, temperature 1")
        started, log = time.monotonic(), self._logs / "offline.log"
        self._console.print(f"Starting LLM.generate with all jobs in one batch, log in {log} ...", soft_wrap=True)
        with under_way(self._console, "running LLM.generate") as passed:
            records = _generate_offline(engine, log, passed)
        for job, record in zip(jobs(), records, strict=True):
            drafts = DraftCounts(record["drafted"], record["accepted"])
            report.add(job, "offline", Answer(record["text"], record["finish_reason"], drafts, None))
        report.need_drafts()
        self._console.print(report.table())
        self._console.print(f"The offline engine took {time.monotonic() - started:.0f} s, start included.")
        return report.problems


def _generate_offline(engine: Engine, log: Path, report: Callable[[str], None]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="infernix-demo-") as scratch:
        result = Path(scratch) / "result.json"
        options = {name: value for name, value in engine.options.items() if name != "served_model_name"}
        module = "infernix_plugin.entrypoints.demo.offline"
        command = [sys.executable, "-m", module, str(engine.model), json.dumps(options), str(result)]
        group = ProcessGroup(command, log=log, environment=engine_environment())
        try:
            code = _end_of(group, report)
        finally:
            group.stop()
        if code != 0:
            raise EngineError(f"LLM.generate ended with exit code {code}. {group.log_summary()}")
        records: list[dict[str, Any]] = json.loads(result.read_text(encoding="utf-8"))
        return records


def _end_of(group: ProcessGroup, report: Callable[[str], None]) -> int:
    """Wait for the exit code; ``report`` is called twice a second with the time waited."""
    started = time.monotonic()
    while (waited := time.monotonic() - started) < OFFLINE_SECONDS:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return group.wait(0.5)
        report(f"{waited:.0f} s")
    raise EngineError(f"LLM.generate took longer than {OFFLINE_SECONDS} s. {group.log_summary()}")


def _send_everything(server: ServerProcess, engine: Engine, report: Report, progress: Callable[[str], None]) -> None:
    client = _client(server)
    for job in [*jobs(), *(call_jobs() if engine.has_calls else [])]:
        for stream in job.streams:
            progress(job.title)
            before = server.draft_counts()
            try:
                text, finish_reason, seconds = _ask(client, job, stream, engine.temperature)
            except _api_error() as error:
                report.problem(f"{job.title}: {error}")
                continue
            drafts = server.draft_counts() - before
            report.add(job, _way(stream), Answer(text, finish_reason, drafts, seconds))
    for stream in (False, True):
        title = "a schema with a typing error"
        progress(title)
        report.add_refusal(title, _way(stream), _ask_for_a_refusal(client, stream))
    report.need_drafts()


def _client(server: ServerProcess) -> OpenAI:
    from openai import DefaultHttpxClient, OpenAI

    return OpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        max_retries=0,
        http_client=DefaultHttpxClient(trust_env=False, timeout=REQUEST_SECONDS),  # no proxy on the way to ourselves
    )


def _ask(client: OpenAI, job: Job, stream: bool, temperature: float) -> tuple[str, str | None, float]:
    """Return the text, the finish reason and the seconds it took."""
    fields = job.request_fields()
    extra = {"chat_template_kwargs": {"enable_thinking": False}} | fields.pop("extra_body", {})
    request: dict[str, Any] = {
        "model": "demo",
        "messages": job.messages,
        "temperature": temperature,
        "seed": 1,
        "max_tokens": job.max_tokens,
        "extra_body": extra,
    } | fields
    text, finish_reason = "", None
    started = time.monotonic()
    if stream:
        for chunk in client.chat.completions.create(stream=True, **request):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                text += "".join(map(_call_text, choice.delta.tool_calls or ()))
                finish_reason = choice.finish_reason or finish_reason
    else:
        (choice,) = client.chat.completions.create(**request).choices
        text, finish_reason = choice.message.content or "", choice.finish_reason
        text += "".join(map(_call_text, choice.message.tool_calls or ()))
    return text, finish_reason, time.monotonic() - started


def _call_text(call: Any) -> str:
    """A call, or the part of one that a stream brings, as ``name: arguments``."""
    name = f"{call.function.name}: " if call.function.name else ""
    return f"{name}{call.function.arguments or ''}"


def _ask_for_a_refusal(client: OpenAI, stream: bool) -> Refusal:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": MISTAKEN_SCHEMA}}
    messages: list[Any] = [{"role": "user", "content": PERSON_PROMPT}]
    create: Any = client.chat.completions.create
    status, location, message = 200, None, "accepted"
    started = time.monotonic()
    try:
        answer = create(model="demo", messages=messages, max_tokens=8, response_format=form, stream=stream)
        if stream:
            list(answer)
    except _api_error() as error:
        body = error.body if isinstance(error.body, dict) else {}
        status = getattr(error, "status_code", 200)
        location, message = error.param, str(body.get("message", error))
    return Refusal(status, location, message, time.monotonic() - started)


def _api_error() -> Any:
    from openai import APIError

    return APIError


def _way(stream: bool) -> str:
    return "stream" if stream else "client"


def _how_to_go_on(server: ServerProcess) -> str:
    question = [{"role": "user", "content": PERSON_PROMPT.replace("\n", " ")}]
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON_SCHEMA}}
    mood = [{"role": "user", "content": "Is this review positive, negative or neutral? I loved the cake."}]
    base: dict[str, Any] = {"model": "demo", "temperature": 0, "max_tokens": 200}
    base |= {"chat_template_kwargs": {"enable_thinking": False}}
    requests = [
        base | {"messages": question, "response_format": form},
        base | {"messages": mood, "structured_outputs": {"choice": MOODS}},
        base | {"messages": mood, "structured_outputs": {"regex": "(yes|no), because [a-z ]{5,40}\\."}},
    ]
    lines = [f"\nThe server stays at {server.url}. Try:\n"]
    for body in requests:
        lines.append(
            f"curl -s --noproxy '*' {server.url}/v1/chat/completions -H 'Content-Type: application/json' "
            f"-d '{json.dumps(body)}'\n"
        )
    lines.append(f"Stop it with: kill -- -{server.pid}")
    return "\n".join(escape(line) for line in lines)
