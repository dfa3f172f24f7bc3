"""Constraints where vLLM ignores them: misspelled, in another field, or in an ``extra_body`` that is sent as such."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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

KEYS = (
    *("json", "regex", "choice", "grammar", "json_object", "structural_tag"),
    *("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"),
)
"""Keys of ``structured_outputs``: at the top of a request they are nothing."""

_ELSEWHERE = {
    "ebnf": 'structured_outputs: {"grammar": ...}',
    "json_schema": 'structured_outputs: {"json": ...}',
}
"""Constraints of other servers at the top of a request, and what is said here instead."""

_OLDER = {"functions": "tools", "function_call": "tool_choice"}
"""OpenAI's first fields for tools, which vLLM ignores, and those that came after them."""

_SLIPS = (
    *("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "thinking_token_budget"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"),
    *("stop", "stop_sequences", "stop_token_ids", "bad_words", "allowed_token_ids", "logit_bias"),
)
"""Further fields whose loss would let an output be what the client has ruled out."""

_ASKS_BY_FALSE = "parallel_tool_calls"
"""It asks for something by being false."""

_FREE = {"type": "text"}
"""A response format that asks for nothing."""

_NEARLY = 0.85
"""How alike two names are, of 1, for the one to be a slip of the pen for the other."""
_SWAPPED = 0.8
"""And with the same letters: two of them change places."""
_LONGER = 2
"""And how much longer or shorter: ``response_format_hint`` means something else."""


def refuse_ignored(given: Mapping[str, Any], read: Iterable[str], own: Collection[str]) -> None:
    """Refuse unknown fields of a request that are nearly one for a constraint, or the part of one.

    Args:
        given: the fields that vLLM does not know.
        read: those of them that are read nevertheless.
        own: the fields that the API has.

    Raises:
        ConflictingConstraints: located by the field's name.
    """
    read = {*read, *REMOVED}
    form = format_of(own)
    for name, value in given.items():
        if name in read or name in _SLIPS:
            continue
        if (value and value != _FREE) or (value is False and _nearly(name, [_ASKS_BY_FALSE])):
            _refuse_field(name, value, form, own)


def format_of(own: Collection[str]) -> str:
    """Return which of :data:`FORMATS` an API with these fields has, or what it has instead."""
    held = (form for form in (*FORMATS, "structured_outputs") if form.partition(".")[0] in own)
    return next(held, FORMATS[0])


def _refuse_field(name: str, value: Any, form: str, own: Collection[str]) -> None:
    if name == "extra_body" and isinstance(value, Mapping):
        _refuse_inside(name, value, "extra_body is an argument of a client; in a request, its keys stand at the top.")
    elif name in KEYS:
        raise _ignored(name, f'It is a key of structured_outputs: {{"{name}": ...}}.')
    elif name in _ELSEWHERE:
        raise _ignored(name, f"It is said as {_ELSEWHERE[name]}.")
    elif name in _OLDER:
        if _OLDER[name] in own and value not in ("none", "auto"):
            raise _ignored(name, f"Its name here is {_OLDER[name]}.")
    elif name in _HOLDERS and isinstance(value, Mapping) and value.get(_HOLDERS[name]) not in (None, _FREE):
        raise _ignored(name, f"Its name here is {form}.")
    elif (meant := _meant(name)) is not None:
        here = form if meant == FORMATS[0] else meant
        raise _ignored(name, f"Its name here is {here}." if name == meant else _suggestion(here))
    elif name != (holder := form.partition(".")[0]) and (slip := _nearly(name, {holder, *_SLIPS} & {*own})):
        raise _ignored(name, _suggestion(slip))


def refuse_ignored_members(
    given: Mapping[str, Any], known: Collection[str], place: str, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse members of a part of a request that are nearly ``known`` ones, or have another API's name for one.

    Args:
        given: the part; a member that is ``None`` is absent.
        known: members that constrain something.
        place: of the part.
        elsewhere: names of other APIs, and what they are called here.

    Raises:
        ConflictingConstraints: located by ``place`` and the member's name.
    """
    elsewhere = elsewhere or {}
    for name, value in given.items():
        if value is None or name in known or str(name).startswith("$"):  # $schema is no slip of schema
            continue
        meant = _nearly(str(name), (*known, *elsewhere))
        if meant is not None:
            here = elsewhere.get(meant, meant)
            raise ConflictingConstraints(
                f"There is no member {excerpt(str(name))}, and it would be ignored.",
                location=f"{place}.{bounded(str(name))}",
                hint=_suggestion(here) if here == meant else f"Its name here is {here}.",
            )


def refuse_beside(given: Mapping[str, Any], inner: Iterable[str], place: str, holder: str) -> None:
    """Refuse members that stand beside the member ``holder`` of a part of a request, and belong inside it.

    A member that is ``None`` is absent.

    Raises:
        ConflictingConstraints: located by ``place`` and the member's name.
    """
    for name in inner:
        if given.get(name) is not None:
            raise ConflictingConstraints(
                f"{name} beside {holder} would be ignored.",
                location=f"{place}.{name}",
                hint=f"It belongs inside {holder}.",
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
    meant = _nearly(name, (*GUIDED, "structured_outputs", FORMATS[0]))
    if meant and abs(len(meant) - len(name)) <= _LONGER:
        return meant
    return "" if name.startswith("guided_") else None


def _nearly(name: str, fields: Iterable[str]) -> str | None:
    """Return the field that a name is like."""
    name, fields = name.lower(), tuple(fields)
    swapped = [field for field in fields if sorted(field) == sorted(name)]
    near = get_close_matches(name, fields, n=1, cutoff=_NEARLY) or get_close_matches(name, swapped, 1, _SWAPPED)
    return next(iter(near), None)


def _ignored(name: str, hint: str) -> ConflictingConstraints:
    return ConflictingConstraints(
        f"There is no field {excerpt(name)}, and it would be ignored.", location=bounded(name), hint=hint
    )


def _suggestion(here: str) -> str:
    return f"Did you mean {here}?" if here else f"There are {', '.join(GUIDED)}."
