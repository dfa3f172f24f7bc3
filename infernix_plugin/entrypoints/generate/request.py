"""From the options of the command to the fields of a chat request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from infernix_plugin.entrypoints.check.source import read_bytes, without_line_end


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What was asked for; at most one of the five constraints."""

    prompt: str
    grammar_file: str | None = None
    json_schema_file: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] = ()
    tools_file: str | None = None
    tool_choice: str | None = None
    max_tokens: int = 1024
    temperature: float | None = None
    seed: int | None = None
    thinking: bool = False


def fields_of(options: GenerateOptions) -> dict[str, Any]:
    """The keyword arguments of the OpenAI client's ``chat.completions.create``, without the model.

    Raises:
        typer.BadParameter: two constraints, a file that cannot be read, or a tool choice without tools.
    """
    body: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": options.thinking}}
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": options.prompt}],
        "max_tokens": options.max_tokens,
        "extra_body": body,
    }
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.seed is not None:
        fields["seed"] = options.seed
    structured = _structured(options)
    if structured:
        body["structured_outputs"] = structured
    if options.tools_file is not None:
        fields["tools"] = _tools(options.tools_file)
        fields["tool_choice"] = _choice(options.tool_choice or "auto")
    elif options.tool_choice is not None:
        raise typer.BadParameter("there are no tools to choose from", param_hint="--tool-choice")
    return fields


def _structured(options: GenerateOptions) -> dict[str, Any]:
    given = {
        "--grammar-file": options.grammar_file,
        "--json-schema-file": options.json_schema_file,
        "--json-object": options.json_object or None,
        "--regex": options.regex,
        "--choice": list(options.choice) or None,
    }
    flags = [flag for flag, value in given.items() if value is not None]
    if len(flags) > 1:
        raise typer.BadParameter(f"only one of {' and '.join(flags)} can be given", param_hint=flags[1])
    if options.grammar_file is not None:
        return {"grammar": _text(options.grammar_file, "--grammar-file")}
    if options.json_schema_file is not None:
        return {"json": _text(options.json_schema_file, "--json-schema-file")}
    if options.json_object:
        return {"json_object": True}
    if options.regex is not None:
        return {"regex": options.regex}
    return {"choice": list(options.choice)} if options.choice else {}


def _text(source: str, flag: str) -> str:
    try:
        return without_line_end(read_bytes(source).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{source} is not UTF-8: byte {error.start}", param_hint=flag) from None


def _tools(source: str) -> list[Any]:
    """A JSON array of tools in the form of Chat Completions, or of their bare functions."""
    try:
        tools = json.loads(_text(source, "--tools-file"))
    except ValueError as error:
        raise typer.BadParameter(f"{source} is not JSON: {error}", param_hint="--tools-file") from None
    if not isinstance(tools, list) or not tools or not all(isinstance(tool, dict) for tool in tools):
        raise typer.BadParameter(f"{Path(source).name} must hold a JSON array of tools", param_hint="--tools-file")
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]


def _choice(choice: str) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}
