"""Where a structural tag is wrong. xgrammar, which defines what tags mean, says why, and of a large tag not where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from infernix_plugin.errors import InvalidGrammar, bounded, excerpt
from infernix_plugin.grammar.structural_tag import PLAIN
from infernix_plugin.matching.engines.xgrammar import REFUSED, reason_of
from infernix_plugin.matching.tag_formats import check_formats, members, parts, token_names, with_parts
from infernix_plugin.structured_output.structural_tag import TYPE, older_place, present_form

MOST_TRIED = 1000
"""Formats of a tag that are tried one by one; of a larger tag the reason is told without a place."""

_CONTENTS = {"regex": "pattern", "grammar": "grammar", "json_schema": "json_schema"}
"""Types of formats -> the member whose content xgrammar reads."""
_FILLER = {"type": "const_string", "value": "x"}
_OLDER = {"begin": "a string", "schema": "a JSON Schema", "end": "a string"}
"""Members of a structure of the older form, and what each is."""


def fault_of(text: str, reason: str | None = None) -> InvalidGrammar | None:
    """Say what is wrong with the JSON text of a structural tag, and where; ``None`` if xgrammar takes it.

    JSON Schemas in the plain style are not looked at: they are judged when the tag is compiled.

    Args:
        text: the tag as a client wrote it.
        reason: why xgrammar refused it, if that is known. Otherwise it is asked, without a vocabulary, unless the tag
            names tokens, which need one.

    Raises:
        ConstraintTooLarge: formats are nested too deeply.
    """
    try:
        tag = _read(text)
        return _content_fault(tag, reason)
    except InvalidGrammar as fault:
        return fault


def judged_alone(text: str) -> str | None:
    """Return what of a structural tag xgrammar can judge without a vocabulary; ``None`` if it names tokens.

    xgrammar refuses schemas that this package enforces, so schemas that it will not get are left out.

    Raises:
        InvalidGrammar: the outer form is wrong, or a format has an unknown member.
        ConstraintTooLarge: formats are nested too deeply.
    """
    form = present_form(_read(text))
    if any(token_names(form)):
        return None
    return json.dumps({"type": TYPE, "format": _without_schemas(form)})


def _read(text: str) -> dict[str, Any]:
    """Read a tag whose outer form is right and whose formats have known members only."""
    try:
        tag: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{error.lineno}:{error.colno}"
        raise InvalidGrammar(f"The structural tag is no JSON: {error.msg}", location=place) from None
    except (ValueError, RecursionError):
        raise InvalidGrammar("The structural tag is no JSON that can be read.") from None
    if (fault := shape_fault(tag)) is not None:
        raise fault
    check_formats(present_form(tag))
    return tag


def fault_behind(error: InvalidGrammar, text: str) -> InvalidGrammar | None:
    """Say where the JSON text of a structural tag is wrong, given the error that compiling it ended with."""
    said, _, reason = error.message.partition(": ")
    return fault_of(text, reason if said == REFUSED else None)


def shape_fault(tag: Any) -> InvalidGrammar | None:
    """Say what is wrong with the outer form of a tag, without looking into formats and schemas."""
    if not isinstance(tag, Mapping):
        return InvalidGrammar(f"A structural tag is an object, not of the type {type(tag).__name__}.", location="#")
    if "format" in tag:
        if tag.get("type") != TYPE:
            return InvalidGrammar(f"The type of a structural tag is {TYPE!r}.", location="#/type")
        return None if isinstance(tag["format"], Mapping) else _no_object("format", "#/format", tag["format"])
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if structures is None and triggers is None:
        return InvalidGrammar("The structural tag has no format.", location="#", hint="It has the member format.")
    if not isinstance(structures, list) or not structures:
        return InvalidGrammar("structures must be a list with at least one structure.", location="#/structures")
    if not isinstance(triggers, list) or not triggers or not all(isinstance(trigger, str) for trigger in triggers):
        return InvalidGrammar("triggers must be a list of strings, with at least one.", location="#/triggers")
    for index, structure in enumerate(structures):
        place = f"#/structures/{index}"
        if not isinstance(structure, Mapping):
            return _no_object("structure", place, structure)
        for name, kind in _OLDER.items():
            if name not in structure:
                return InvalidGrammar(
                    f"A structure needs the member {name}.", location=place, hint=f"{name} is {kind}."
                )
            if not isinstance(structure[name], Mapping | bool if name == "schema" else str):
                return InvalidGrammar(f"{name} must be {kind}.", location=f"{place}/{name}")
    return None


def _no_object(name: str, place: str, value: Any) -> InvalidGrammar:
    return InvalidGrammar(f"A {name} is an object, not of the type {type(value).__name__}.", location=place)


def _content_fault(tag: dict[str, Any], reason: str | None) -> InvalidGrammar | None:
    form = _without_schemas(present_form(tag))
    names = list(token_names(form))
    if reason is None and not names:
        reason = _refusal(form)
    if reason is None:
        return None
    unknown = next((place for place, name in names if reason.startswith(f'Token string "{name}"')), None)
    if unknown is not None:
        return InvalidGrammar(f"{REFUSED}: {bounded(reason)}", location=unknown)
    fault = _fault_in(*_refused_part(form, reason), reason)
    if "format" not in tag and fault.location is not None:
        fault.location = older_place(fault.location)
    return fault


def _refused_part(form: Any, reason: str) -> tuple[str, Any]:
    """Return the part of a format that is refused for this reason even alone, or all of it, with its JSON Pointer."""
    for pointer, part in islice(_formats("#/format", form), MOST_TRIED):
        if _refusal(_alone(part)) == reason:
            return pointer, part
    return "#/format", form


def _fault_in(place: str, form: Any, reason: str) -> InvalidGrammar:
    if not isinstance(form, Mapping):
        return _no_object("format", place, form)
    kind, known = str(form.get("type")), list(members())
    if "type" not in form:
        return InvalidGrammar("A format has no type.", location=place, hint=f"Its types are {', '.join(known)}.")
    if kind not in known:
        meant = get_close_matches(kind, known, n=1)
        hint = f"Did you mean {meant[0]}?" if meant else f"Its types are {', '.join(known)}."
        return InvalidGrammar(f"There is no format of the type {excerpt(kind)}.", location=f"{place}/type", hint=hint)
    if _CONTENTS.get(kind) in form:
        place = f"{place}/{_CONTENTS[kind]}"
    return InvalidGrammar(f"{REFUSED}: {bounded(reason)}", location=place)


def _formats(pointer: str, form: Any) -> Iterator[tuple[str, Any]]:
    """Yield the formats of a format with their JSON Pointers, in the order of the text, the inner ones first."""
    for key, part in parts(form) if isinstance(form, Mapping) else ():
        yield from _formats(f"{pointer}/{key}", part)
    yield pointer, form


def _alone(form: Any) -> Any:
    """Return a format whose parts are of no account."""
    if not isinstance(form, Mapping):
        return form
    return with_parts(form, lambda key, part: _alone(part) if key.startswith("tags/") else _FILLER)


def _without_schemas(form: Any) -> Any:
    """Return a format in which schemas in the plain style say nothing."""
    if not isinstance(form, Mapping):
        return form
    schema = form.get("json_schema")
    if form.get("type") == "json_schema" and form.get("style", PLAIN) == PLAIN and isinstance(schema, Mapping | bool):
        return {**form, "json_schema": True}
    return with_parts(form, lambda _, part: _without_schemas(part))


def _refusal(form: Any) -> str | None:
    """Return why xgrammar refuses a format, ``None`` if it does not."""
    import xgrammar

    try:
        xgrammar.Grammar.from_structural_tag(json.dumps({"type": TYPE, "format": form}))
    except (RuntimeError, ValueError, RecursionError) as error:
        return reason_of(error)
    return None
