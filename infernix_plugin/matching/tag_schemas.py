"""JSON Schemas inside xgrammar's structural tags, which define their meaning: replaced by grammars of our own.

xgrammar reads a schema more loosely than it is meant: it passes over keywords that it does not enforce. So each is
compiled as everywhere else, or refused with its place, and the tag has a grammar where it had the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from infernix_plugin.errors import ConstraintError, InvalidGrammar, UnsupportedSchema, excerpt
from infernix_plugin.grammar.emit import emit
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.normalize import normalize
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.engines.rehearsal import check_size
from infernix_plugin.matching.terminals import with_equal_exclusions

_PLAIN = "json"
"""The style of a schema that stands for JSON text. The others are notations for calls, which xgrammar writes."""


def with_own_schemas(text: str, options: GrammarOptions) -> str:
    """Return the JSON text of a structural tag with grammars in the place of JSON Schemas.

    Args:
        text: the tag, in the present form.
        options: how schemas are read, and limits.

    Raises:
        InvalidGrammar: a format has a member that its type does not have; xgrammar would pass over it.
        ConstraintError: a schema cannot be enforced here; the location is a JSON Pointer into the tag.
    """
    try:
        tag = json.loads(text)
        form = tag["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return text  # xgrammar says why not
    replaced = _replaced(form, "#/format", options)
    return text if replaced == form else json.dumps({**tag, "format": replaced}, ensure_ascii=False)


def _replaced(form: Any, place: str, options: GrammarOptions, kind: str | None = None) -> Any:
    if not isinstance(form, Mapping):
        return form
    kind = str(form.get("type", kind))
    _check_members(form, kind, place)
    if kind == "json_schema" and "json_schema" in form and form.get("style", _PLAIN) == _PLAIN:
        return _schema(form, place, options)
    inner = dict(form)
    if "content" in form:
        inner["content"] = _replaced(form["content"], f"{place}/content", options)
    for name, implied in (("elements", None), ("tags", "tag")):
        if isinstance(form.get(name), list):
            inner[name] = [
                _replaced(part, f"{place}/{name}/{index}", options, implied) for index, part in enumerate(form[name])
            ]
    if isinstance(form.get("rules"), list):
        inner["rules"] = [
            [rule[0], _replaced(rule[1], f"{place}/rules/{index}/1", options)]
            if isinstance(rule, list) and len(rule) == 2
            else rule
            for index, rule in enumerate(form["rules"])
        ]
    return inner


def _schema(form: Mapping[str, Any], place: str, options: GrammarOptions) -> dict[str, Any]:
    if form.get("excludes"):
        raise UnsupportedSchema("A schema with excluded texts is not supported.", location=f"{place}/excludes")
    spaces = form.get("max_whitespace_cnt")
    if type(spaces) is int and 0 <= spaces < options.max_whitespace:
        options = replace(options, max_whitespace=spaces)
    try:
        return {"type": "grammar", "grammar": _grammar(json.dumps(form["json_schema"], ensure_ascii=False), options)}
    except ConstraintError as error:
        inside = error.location if (error.location or "").startswith("#") else "#"
        error.location = f"{place}/json_schema{(inside or '#')[1:]}"
        raise


def _grammar(schema: str, options: GrammarOptions) -> str:
    built = lower(schema, options)
    if built.unique is not None:
        raise UnsupportedSchema("Items that must differ are not enforced inside a structural tag.", location="#")
    try:
        normal = normalize(with_equal_exclusions(built))
        check_size(normal)
        return emit(normal)
    except ValueError:
        raise UnsupportedSchema(
            "The schema is not enforced inside a structural tag: it needs two conditions on one value at once.",
            location="#",
            hint="Give it as the response format, or write one condition that says both.",
        ) from None


def _check_members(form: Mapping[str, Any], kind: str, place: str) -> None:
    known = _members().get(kind)
    unknown = next((name for name in form if known is not None and name not in known), None)
    if unknown is not None and known is not None:
        meant = get_close_matches(unknown, known, n=1)
        hint = f"Did you mean {meant[0]}?" if meant else f"It has {', '.join(sorted(known))}."
        raise InvalidGrammar(f"A format {kind} has no member {excerpt(unknown)}.", location=f"{place}", hint=hint)


@cache
def _members() -> dict[str, frozenset[str]]:
    """Return the types of formats that xgrammar knows -> their members."""
    from xgrammar import structural_tag

    models = get_args(get_args(structural_tag.Format)[0])
    return {get_args(one.model_fields["type"].annotation)[0]: frozenset(one.model_fields) for one in models}
