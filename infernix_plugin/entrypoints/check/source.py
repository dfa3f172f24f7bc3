"""From a file, or standard input, to a constraint or an instance. What cannot be read is an error of usage."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from infernix_plugin.entrypoints.check.kind import Kind
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.structured_output import structural_tag
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import grammar_of

STDIN = "-"


_SUFFIXES = {".json": Kind.JSON_SCHEMA, ".gbnf": Kind.GRAMMAR, ".lark": Kind.GRAMMAR, ".regex": Kind.REGEX}


def kind_of(source: str, kind: Kind | None) -> Kind:
    """The kind that was asked for, or the one that the name of the file says.

    Raises:
        typer.BadParameter: neither says it.
    """
    inferred = kind or _SUFFIXES.get(Path(source).suffix.lower())
    if inferred is None:
        raise typer.BadParameter(
            f"the name {source} does not say what kind of constraint it holds; give --kind", param_hint="--kind"
        )
    return inferred


def read_text(source: str) -> str:
    """The content of a file, or of standard input for ``-``.

    Raises:
        typer.BadParameter: it cannot be read, or is not text.
    """
    return _decoded(source, read_bytes(source))


def constraint_of(source: str, text: str, kind: Kind) -> OutputConstraint | StructuralTag:
    """Read a constraint as the server does. One line end at the end of a regex belongs to the file, not to the pattern.

    Args:
        source: the name of the file.
        text: its content.
        kind: what it holds.

    Raises:
        typer.BadParameter: the choices are not JSON.
        ConstraintError: the content cannot be a constraint of this kind.
    """
    match kind:
        case Kind.GRAMMAR:
            return grammar_of(text)
        case Kind.JSON_SCHEMA:
            return OutputConstraint.json_schema(text)
        case Kind.REGEX:
            return OutputConstraint.regex(without_line_end(text))
        case Kind.CHOICE:
            return OutputConstraint.choice(_choices(source, text))
        case Kind.STRUCTURAL_TAG:
            return structural_tag.from_json(text)


def read_bytes(source: str) -> bytes:
    """The content of a file, or of standard input for ``-``.

    Raises:
        typer.BadParameter: it cannot be read.
    """
    if source == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror or error}") from None


def without_line_end(text: str) -> str:
    """The text without one line end at its end."""
    return text.removesuffix("\n").removesuffix("\r")


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{source} is not UTF-8: byte {error.start}") from None


def _choices(source: str, text: str) -> list[str]:
    """A JSON array in a ``.json`` file, else one choice a line."""
    if Path(source).suffix.lower() != ".json":
        return without_line_end(text).replace("\r\n", "\n").split("\n") if text else []
    try:
        choices = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{source} is not JSON: {error}") from None
    if not isinstance(choices, list):
        raise typer.BadParameter(f"{source} must hold a JSON array of strings")
    return choices
