"""``--speculative-config`` as a user writes it: known keys, and one line where vLLM prints a dump of its model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from infernix_plugin.errors import bounded, excerpt

if TYPE_CHECKING:
    from pydantic import ValidationError

OPTION = "--speculative-config"

_TITLE = "SpeculativeConfig"
"""vLLM's class of these options, which gives its errors their title."""


def refusal(given: Any, known: Collection[str]) -> str | None:
    """Say what of a value is none of vLLM's options; ``None`` if nothing is.

    Args:
        given: the decoded value.
        known: the names of vLLM's options. It reads dashes in them as underscores.
    """
    if not isinstance(given, Mapping):
        return f"{OPTION} is of the type {type(given).__name__} and should be an object"
    for name in given:
        plain = str(name).replace("-", "_")
        if plain not in known:
            meant = get_close_matches(plain.lower(), known, n=1)
            hint = (
                f"did you mean {meant[0]}?"
                if meant
                else 'it has "method", "model", "num_speculative_tokens" and others'
            )
            return f"{OPTION} has no key {excerpt(str(name))}; {hint}"
    return None


def told(error: ValidationError) -> str | None:
    """Return what vLLM says of a value in one line; ``None`` if the error is about something else."""
    if error.title != _TITLE:
        return None
    first = error.errors()[0]
    said = bounded(" ".join(first["msg"].removeprefix("Value error, ").split()), 600)
    if not first["loc"]:
        return f"{OPTION}: {said}"
    place = ".".join(map(str, first["loc"]))
    return f"{OPTION}: {bounded(place)} is {bounded(repr(first['input']))}: {said}"
