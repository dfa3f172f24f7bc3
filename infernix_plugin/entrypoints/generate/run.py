"""Send the request, stream the answer, and say by the exit code how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import typer

from infernix_plugin.entrypoints.demo.server import serve
from infernix_plugin.entrypoints.generate.request import GenerateOptions, fields_of
from infernix_plugin.entrypoints.serve import command_line
from infernix_plugin.errors import InfernixError


class Exit(IntEnum):
    """How a generation ended."""

    COMPLETE = 0
    REFUSED = 1
    """The server refused the request, or failed."""
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
        typer.BadParameter: wrong usage.
    """
    fields = fields_of(options)
    with _server(model) as url:
        client = openai.OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key="none", max_retries=0)
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
def _server(model: str) -> Iterator[str]:
    if model.startswith(("http://", "https://")):
        try:
            urlsplit(model)
        except ValueError as error:
            raise typer.BadParameter(f"{model} is no URL: {error}") from None
        yield model
        return
    from vllm.platforms import current_platform

    print(f"infernix: starting a server for {model}", file=sys.stderr, flush=True)
    arguments = command_line(model, ["--max-num-seqs", "1", "--enforce-eager"], on_cpu=bool(current_platform.is_cpu()))
    with tempfile.TemporaryDirectory() as directory, serve(arguments[1:], log=Path(directory) / "server.log") as server:
        server.wait_until_healthy(lambda waited: None)
        yield server.url
