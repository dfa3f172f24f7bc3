"""A response format as a client writes it: a known type, with what that type needs.

vLLM tries every type that it has, and answers with a dump of all its attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from infernix_plugin.entrypoints.ignored_fields import FORMATS, refuse_beside, refuse_ignored_members, refuse_misplaced
from infernix_plugin.errors import ConflictingConstraints, excerpt
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS
from infernix_plugin.structured_output.structural_tag import TYPE
from infernix_plugin.structured_output.tag_fault import shape_fault

CHAT, RESPONSES, MESSAGES = FORMATS
TYPES = {
    CHAT: ("text", "json_object", "json_schema", TYPE),
    RESPONSES: ("text", "json_object", "json_schema"),
    MESSAGES: ("json_schema",),
}
"""Types of response formats by the field that holds them."""

_HOLDER = "json_schema"
"""The member with the schema and its name in Chat and Completions; elsewhere they stand in the format itself."""
_NAMED_SCHEMA = 'It is {"name": "...", "schema": {...}}.'
_KEYWORDS = tuple(name for name in ASSERTIONS if name not in ("type", "id", "$id"))
"""Of JSON Schema, that would be ignored beside a schema. The others have a meaning there, or assert nothing."""
_FORMAT_ELSEWHERE = dict.fromkeys(("response_format", "output_format"), "format")
_OPTIONAL: Mapping[str, tuple[TypeAdapter[Any], str]] = {
    "description": (TypeAdapter(str | None), "description is a string."),
    "strict": (TypeAdapter(bool | None), "strict is true or false."),
}


def check_format_holder(given: Any, place: str) -> None:
    """Refuse a response format inside another one of a request's fields that cannot be read, or would be ignored.

    Args:
        given: the decoded value of the field; ``None`` is an absent one.
        place: of the response format: the field and the member with it.

    Raises:
        ConflictingConstraints: located by names of fields.
    """
    if not isinstance(given, Mapping):
        return
    field, _, member = place.partition(".")
    refuse_ignored_members(given, (member,), field, _FORMAT_ELSEWHERE)
    refuse_misplaced({field: given})
    refuse_beside(given, ("schema", _HOLDER), field, member)
    if given.get("type") != "text":
        refuse_beside(given, ("type",), field, member)
    check_response_format(given.get(member), place)


def check_response_format(given: Any, place: str) -> None:
    """Refuse a response format that cannot be read.

    Args:
        given: the decoded value; ``None`` is an absent one.
        place: the field that holds it, a key of :data:`TYPES`.

    Raises:
        ConflictingConstraints: located by names of fields.
        InvalidGrammar: it is a structural tag without the form of one; located by a JSON Pointer.
    """
    if given is None or isinstance(given, BaseModel):
        return
    types = TYPES[place]
    listed = f"Its types are {', '.join(types)}." if len(types) > 1 else f"Its type is {types[0]}."
    if not isinstance(given, Mapping):
        raise _other_type(place, given, listed)
    if "type" not in given and place != MESSAGES:
        raise _mistake(place, f"{place} has no type.", listed)
    kind = given.get("type", types[0])
    if not isinstance(kind, str):
        raise _other_type(f"{place}.type", kind, listed)
    if kind not in types:
        meant = get_close_matches(kind, types, n=1)
        hint = f"Did you mean {meant[0]}?" if meant else listed
        raise _mistake(f"{place}.type", f"{place} has no type {excerpt(kind)}.", hint)
    if kind == TYPE:
        if (fault := shape_fault(given)) is not None:
            raise fault
    elif place != CHAT:
        if kind == "json_schema":
            _check_schema(given, place)
    elif given.get(_HOLDER) is not None or kind == "json_schema":
        refuse_beside(given, _KEYWORDS, place, f"{_HOLDER}.schema")
        _check_schema(given.get(_HOLDER), f"{place}.{_HOLDER}")


def _check_schema(holder: Any, place: str) -> None:
    if holder is None:
        raise _mistake(place, f"{place} is missing.", _NAMED_SCHEMA)
    if not isinstance(holder, Mapping):
        raise _other_type(place, holder, _NAMED_SCHEMA)
    refuse_ignored_members(holder, ("schema", "strict"), place)
    refuse_beside(holder, _KEYWORDS, place, "schema")
    name, schema = holder.get("name"), holder.get("schema")
    if place != MESSAGES and not isinstance(name, str):
        at, hint = f"{place}.name", "name is a string of your choice."
        raise _mistake(at, f"{at} is missing.", hint) if name is None else _other_type(at, name, hint)
    at, hint = f"{place}.schema", "schema is a JSON Schema, as an object."
    if schema is None and place == RESPONSES:  # elsewhere it is missed when it is compiled
        raise _mistake(at, f"{at} is missing.", hint)
    if not isinstance(schema, Mapping | None):
        raise _other_type(at, schema, hint)
    for option, (adapter, hint) in _OPTIONAL.items():
        try:
            adapter.validate_python(holder.get(option))
        except ValidationError:
            raise _other_type(f"{place}.{option}", holder[option], hint) from None


def _other_type(place: str, value: Any, hint: str) -> ConflictingConstraints:
    return _mistake(place, f"{place} cannot be of the type {type(value).__name__}.", hint)


def _mistake(place: str, message: str, hint: str) -> ConflictingConstraints:
    return ConflictingConstraints(message, location=place, hint=hint)
