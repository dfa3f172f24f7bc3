"""Constraints where vLLM ignores them: misspelled, in another field, or in an ``extra_body`` that is sent as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from infernix_plugin.errors import ConflictingConstraints, bounded, excerpt

GUIDED = {
    "guided_choice": "choice",
    "guided_regex": "regex",
    "guided_grammar": "grammar",
    "guided_json": "json",
}
"""The fields of older servers that are read, and their names in ``structured_outputs``. Where several are given, the
first in this order counts."""

REMOVED = {
    "guided_json_object": 'structured_outputs: {"json_object": true}',
    "guided_decoding_backend": "no option: there is one backend",
    "guided_whitespace_pattern": "the server's setting max_whitespace",
}
"""Fields of older vLLM releases without a meaning today, and what to write; vLLM itself accepts and ignores them."""

FORMATS = ("response_format", "text.format", "output_config.format")
"""What a response format is called: in Chat and Completions, in Responses, in Messages."""

_HOLDERS = {"text": "format", "output_config": "format", "output_format": "type"}
"""Fields of other APIs and of older clients that hold a response format, if they have this key."""

_SLIPS = ("tool_choice", "thinking_token_budget")
"""Further fields whose loss would let an output be what the client has ruled out."""

_FREE = {"type": "text"}
"""A response format that asks for nothing."""

_NEARLY = 0.85
"""How alike two names are, of 1, for the one to be a slip of the pen for the other."""
_LONGER = 2
"""And how much longer or shorter: ``response_format_hint`` means something else."""


def refuse_ignored(given: Mapping[str, Any], known: Iterable[str], form: str) -> None:
    """Refuse unknown fields of a request that are nearly one for a constraint.

    Args:
        given: the fields that vLLM does not know.
        known: those of them that are read nevertheless.
        form: which of :data:`FORMATS` the API has.

    Raises:
        ConflictingConstraints: located by the field's name.
    """
    known = {*known, *REMOVED}
    for name, value in given.items():
        if not value or value == _FREE or name in known:
            continue
        if name == "extra_body" and isinstance(value, Mapping):
            _refuse_inside(
                name, value, "extra_body is an argument of a client; in a request, its keys stand at the top."
            )
        elif name in _HOLDERS and isinstance(value, Mapping) and value.get(_HOLDERS[name]) not in (None, _FREE):
            raise _ignored(name, f"Its name here is {form}.")
        elif (meant := _meant(name)) is not None:
            here = form if meant == FORMATS[0] else meant
            raise _ignored(name, f"Its name here is {here}." if name == meant else _suggestion(here))
        elif name not in (fields := (*_SLIPS, form.partition(".")[0])):
            for slip in get_close_matches(name.lower(), fields, n=1, cutoff=_NEARLY):
                raise _ignored(name, _suggestion(slip))


def refuse_ignored_members(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Refuse unknown members of a part of a request that are nearly ``known`` ones.

    Raises:
        ConflictingConstraints: located by ``place`` and the member's name.
    """
    for name in given:
        for meant in get_close_matches(name.lower(), tuple(known), n=1, cutoff=_NEARLY):
            raise ConflictingConstraints(
                f"There is no member {excerpt(name)}, and it would be ignored.",
                location=f"{place}.{bounded(name)}",
                hint=_suggestion(meant),
            )


def refuse_misplaced(fields: Mapping[str, Any]) -> None:
    """Refuse constraints inside fields that are made for something else, by name; ``None`` is an absent field.

    Raises:
        ConflictingConstraints: located by the field's name and the key.
    """
    for name, value in fields.items():
        if isinstance(value, Mapping):
            _refuse_inside(name, value, "It is a field of the request itself.")


def _refuse_inside(field: str, held: Mapping[str, Any], hint: str) -> None:
    for name, value in held.items():
        if value is not None and value != _FREE and _meant(str(name)) is not None:
            raise ConflictingConstraints(
                f"{excerpt(str(name))} inside {field} would be ignored.",
                location=f"{field}.{bounded(str(name))}",
                hint=hint,
            )


def _meant(name: str) -> str | None:
    """Return the field for a constraint that a name is, or nearly is; empty if it is only the family that is clear."""
    meant = get_close_matches(name.lower(), (*GUIDED, "structured_outputs", FORMATS[0]), n=1, cutoff=_NEARLY)
    if meant and abs(len(meant[0]) - len(name)) <= _LONGER:
        return meant[0]
    return "" if name.startswith("guided_") else None


def _ignored(name: str, hint: str) -> ConflictingConstraints:
    return ConflictingConstraints(
        f"There is no field {excerpt(name)}, and it would be ignored.", location=bounded(name), hint=hint
    )


def _suggestion(here: str) -> str:
    return f"Did you mean {here}?" if here else f"There are {', '.join(GUIDED)}."
