"""Send the request, stream the answer, and say by the exit code how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

import openai
import typer

from infernix_plugin.entrypoints.demo.process_group import ended_by_signals
from infernix_plugin.entrypoints.demo.runner import cache_directory
from infernix_plugin.entrypoints.demo.server import serve
from infernix_plugin.entrypoints.generate.judging import judge
from infernix_plugin.entrypoints.generate.request import GenerateOptions, fields_of
from infernix_plugin.entrypoints.generate.waiting import Waiting
from infernix_plugin.entrypoints.model_name import require_model
from infernix_plugin.entrypoints.serve import command_line
from infernix_plugin.errors import ConstraintError, InfernixError


class Exit(IntEnum):
    """How a generation ended."""

    COMPLETE = 0
    REFUSED = 1
    """The constraint was refused, by us or by the server, or the server failed."""
    CUT = 3
    """The answer stopped at a limit and is not complete."""


def run(model: str, options: GenerateOptions) -> Exit:
    """Generate one answer. Content goes to standard output as it comes, calls as one JSON object a line behind it;
    reasoning and errors go to standard error.

    Args:
        model: a checkpoint for a server of our own, or the URL of one that runs.
        options: the request.

    Raises:
        EngineError: the server cannot start.
        CheckpointError: there is no such model.
        typer.BadParameter: wrong usage.
    """
    fields = fields_of(options)
    try:
        if "://" not in model:
            judge(model, fields["extra_body"].get("structured_outputs", {}))
    except ConstraintError as error:
        print(f"infernix: error: {error}", file=sys.stderr)
        return Exit.REFUSED
    with _server(model) as (url, is_own):
        transport = openai.DefaultHttpxClient(trust_env=not is_own)  # no proxy on the way to ourselves
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=transport)
        try:
            name = client.models.list().data[0].id
            return _stream(client.chat.completions.create(model=name, stream=True, **fields))
        except openai.APIConnectionError as error:
            raise InfernixError(f"no server answers at {url}") from error
        except openai.APIError as error:
            print(f"infernix: error: {_message(error)}", file=sys.stderr)
            return Exit.REFUSED


def _message(error: openai.APIError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message", error.message))


def _stream(chunks: Any) -> Exit:
    calls: list[dict[str, str]] = []
    finish, text = None, False
    for chunk in chunks:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            text = text or bool(choice.delta.content)
            print(choice.delta.content or "", end="", flush=True)
            print(getattr(choice.delta, "reasoning", None) or "", end="", flush=True, file=sys.stderr)
            for call in choice.delta.tool_calls or []:
                if call.id:
                    calls.append({"name": call.function.name, "arguments": ""})
                calls[call.index]["arguments"] += call.function.arguments or ""
    if text:
        print(flush=True)
    if finish == "length":
        print("infernix: the answer was cut at the limit of tokens", file=sys.stderr)
    for call in calls:
        with contextlib.suppress(ValueError):  # cut off
            print(json.dumps({**call, "arguments": json.loads(call["arguments"])}, ensure_ascii=False), flush=True)
    return Exit.CUT if finish == "length" else Exit.COMPLETE


@contextlib.contextmanager
def _server(model: str) -> Iterator[tuple[str, bool]]:
    """The URL of the server, and whether it is our own."""
    if "://" in model:
        if not _is_url(model):
            raise typer.BadParameter(f"{model} is no URL of a server", param_hint="MODEL")
        yield model.rstrip("/"), False
        return
    require_model(model)
    arguments = command_line(model, ["--max-num-seqs", "1", "--enforce-eager"])
    log = cache_directory() / "logs" / f"generate-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with ended_by_signals(), serve(arguments[1:], log=log) as server:
        with Waiting(sys.stderr, f"infernix: starting a server for {model}, log in {log}") as waiting:
            server.wait_until_healthy(waiting.passed)
        yield server.url, True
    log.unlink(missing_ok=True)  # an error keeps it: its message names the file


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
