"""Refuse a constraint before a server of our own starts, which takes much longer than a compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infernix_plugin import settings
from infernix_plugin.entrypoints.check.vocabulary import load_vocabulary
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler

_CONSTRAINTS: dict[str, Callable[[Any], OutputConstraint]] = {
    "grammar": OutputConstraint.grammar,
    "json": OutputConstraint.json_schema,
    "regex": OutputConstraint.regex,
    "choice": OutputConstraint.choice,
}


def judge(model: str, structured: Mapping[str, Any]) -> None:
    """Compile a constraint for a checkpoint in a local directory; any other checkpoint is the server's to judge.

    Args:
        model: the checkpoint.
        structured: ``structured_outputs`` of the request, perhaps empty.

    Raises:
        ConstraintError: the server would refuse it.
    """
    asked = [_CONSTRAINTS[kind](value) for kind, value in structured.items() if kind in _CONSTRAINTS]
    if not asked or not (Path(model) / "tokenizer.json").is_file():
        return
    own = settings.current()
    compiler = ConstraintCompiler(
        load_vocabulary(Path(model)).domain,
        options=own.grammar_options(),
        cache_bytes=0,
        max_compile_seconds=own.max_compile_seconds,
    )
    for constraint in asked:
        compiler.compile(constraint)
