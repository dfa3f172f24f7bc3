"""The formats of structural tags that xgrammar knows, and the members that each of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from infernix_plugin.errors import ConstraintTooLarge, InvalidGrammar, excerpt

MAX_NESTING = 100
"""Deepest nesting of formats, as in xgrammar."""


def check_formats(form: Any) -> None:
    """Refuse members that a format does not have, which xgrammar would pass over.

    Raises:
        InvalidGrammar: there is one; the location is a JSON Pointer into the tag.
        ConstraintTooLarge: formats are nested more deeply than :data:`MAX_NESTING`.
    """
    for pointer, part in formats("#/format", form):
        kind = str(part.get("type"))
        known = members().get(kind)
        unknown = next((name for name in part if known is not None and name not in known), None)
        if unknown is None or known is None:
            continue
        meant = get_close_matches(unknown, known, n=1)
        hint = f"Did you mean {meant[0]}?" if meant else f"It has {', '.join(sorted(known))}."
        raise InvalidGrammar(f"A format {kind} has no member {excerpt(unknown)}.", location=pointer, hint=hint)


def formats(place: str, form: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every format inside a format with its JSON Pointer, the outer ones first.

    Raises:
        ConstraintTooLarge: they are nested more deeply than :data:`MAX_NESTING`.
    """
    pending = [(place, form, 1)]
    while pending:
        place, form, level = pending.pop()
        if not isinstance(form, Mapping):
            continue
        if level > MAX_NESTING:
            raise ConstraintTooLarge(
                f"the formats of the tag are nested {level} levels deep; the most is {MAX_NESTING}"
            )
        yield place, form
        pending.extend((f"{place}/{key}", part, level + 1) for key, part in reversed(list(parts(form))))


def parts(form: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the formats that a format directly holds with the ends of their JSON Pointers; tags have their type."""
    if "content" in form:
        yield "content", form["content"]
    for name in ("elements", "tags"):
        for index, part in enumerate(listed(form, name)):
            implied = {"type": "tag"} if name == "tags" and isinstance(part, Mapping) else {}
            yield f"{name}/{index}", {**implied, **part} if implied else part
    for index, rule in enumerate(listed(form, "rules")):
        if isinstance(rule, list) and len(rule) == 2:
            yield f"rules/{index}/1", rule[1]


def with_parts(form: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return a format with something else in the place of each format that it directly holds.

    Args:
        form: the format.
        change: gets the end of the JSON Pointer and the part, as it is written, and returns the new part.
    """
    new = dict(form)
    if "content" in form:
        new["content"] = change("content", form["content"])
    for name in ("elements", "tags"):
        if isinstance(form.get(name), list):
            new[name] = [change(f"{name}/{at}", part) for at, part in enumerate(form[name])]
    if isinstance(form.get("rules"), list):
        new["rules"] = [
            [rule[0], change(f"rules/{at}/1", rule[1])] if isinstance(rule, list) and len(rule) == 2 else rule
            for at, rule in enumerate(form["rules"])
        ]
    return new


def token_names(form: Any) -> Iterator[tuple[str, str]]:
    """Yield the tokens that a format names by their texts, each with the JSON Pointer of where it does.

    Raises:
        ConstraintTooLarge: formats are nested more deeply than :data:`MAX_NESTING`.
    """
    for place, part in formats("#/format", form):
        named = [("token", part.get("token"))] if part.get("type") == "token" else []
        for end in ("begin", "end"):
            if isinstance(part.get(end), Mapping):
                named.append((f"{end}/token", part[end].get("token")))
        for name in ("trigger_tokens", "exclude_tokens"):
            named += [(f"{name}/{at}", token) for at, token in enumerate(listed(part, name))]
        if part.get("type") == "token_dispatch":
            rules = enumerate(listed(part, "rules"))
            named += [(f"rules/{at}/0", rule[0]) for at, rule in rules if isinstance(rule, list) and rule]
        yield from ((f"{place}/{key}", token) for key, token in named if isinstance(token, str))


@cache
def members() -> dict[str, frozenset[str]]:
    """The types of formats, and the members of each."""
    from xgrammar import structural_tag

    models = get_args(get_args(structural_tag.Format)[0])
    return {get_args(one.model_fields["type"].annotation)[0]: frozenset(one.model_fields) for one in models}


def listed(form: Mapping[str, Any], name: str) -> list[Any]:
    """A member of a format that is a list; an empty one if it is none."""
    value = form.get(name)
    return value if isinstance(value, list) else []
