"""JSON Schemas in structural tags that are written in the notation of a model's calls, and regular expressions.

xgrammar reads both. It passes over what it does not enforce; here that is refused, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from infernix_plugin.errors import InvalidRegex, InvalidSchema, UnsupportedSchema, excerpt
from infernix_plugin.grammar.json_schema.json_value import child
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS
from infernix_plugin.grammar.json_schema.vocabulary import is_annotation
from infernix_plugin.grammar.options import GrammarOptions

_UNIONS = ("anyOf", "oneOf", "allOf")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LENGTHS = ("minLength", "maxLength")
_OBJECTS = (
    "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
    "maxProperties",
)  # fmt: skip
_ARRAYS = ("items", "prefixItems", "minItems", "maxItems")
_ENFORCED = frozenset(
    (*_UNIONS, *_NUMBERS, *_LENGTHS, *_OBJECTS, *_ARRAYS, "$ref", "type", "enum", "const", "pattern", "format")
)
_FORMATS = frozenset(
    [
        "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
        "uri-template", "json-pointer", "relative-json-pointer",
    ]
)  # fmt: skip
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str, "array": list,
    "object": dict,
}  # fmt: skip
_HIDDEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Parts of a pattern in which an anchor stands for itself."""
_INNER_ANCHOR = re.compile(r"(?<![|(])(?<!^)\^|\$(?![|)])(?!$)(?!\Z)", re.DOTALL)


def check_notation(form: Mapping[str, Any], place: str, options: GrammarOptions) -> None:
    """Check that everything which a schema in a notation says is enforced.

    Raises:
        UnsupportedSchema, InvalidSchema: something is not; the location is a JSON Pointer into the tag.
    """
    if form.get("any_order"):
        raise UnsupportedSchema(
            "Members in any order would be enforced neither as required nor as single.", location=f"{place}/any_order"
        )
    excludes = bool(form.get("excludes"))
    for at, schema in _schemas(form.get("json_schema"), f"{place}/json_schema"):
        try:
            _Check(schema, at, options).run(excludes=excludes)
        except (TypeError, AttributeError):
            raise InvalidSchema("A keyword of the schema has a value of the wrong type.", location=at) from None


def check_anchors(pattern: Any, place: str) -> None:
    """Check that a pattern has no anchor inside, which xgrammar passes over.

    Raises:
        InvalidRegex: it has.
    """
    if isinstance(pattern, str) and _INNER_ANCHOR.search(_HIDDEN.sub("x", pattern)):
        raise InvalidRegex(
            "An anchor in the middle of a regular expression is not enforced here.",
            location=place,
            hint="The expression is anchored at both ends without any.",
        )


class _Check:
    """One schema object and its place."""

    def __init__(self, schema: Mapping[str, Any], place: str, options: GrammarOptions) -> None:
        self._schema = schema
        self._place = place
        self._options = options
        self._said = {name for name in schema if name in ASSERTIONS}

    def run(self, *, excludes: bool) -> None:
        for name in self._schema:
            self._known(name)
        self._alone()
        if self._said & {"enum", "const"}:
            self._listed()
            return
        self._typed()
        self._objects()
        self._strings(excludes)
        if isinstance(self._schema.get("items"), list):
            self._refuse("items", "A list of schemas in items is not enforced in this notation.", "Use prefixItems.")

    def _known(self, name: str) -> None:
        if name in _ENFORCED or is_annotation(name) or (name == "uniqueItems" and not self._schema[name]):
            return
        if name not in ASSERTIONS:
            if self._options.unknown_keywords == "ignore":
                return
            close = get_close_matches(name, ASSERTIONS, n=1)
            self._refuse(name, f"Unknown keyword {excerpt(name)}", f"did you mean {close[0]}?" if close else None)
        self._refuse(name, f"The keyword {name} is not enforced in this notation.")

    def _alone(self) -> None:
        """What xgrammar enforces only where nothing else is said."""
        for name in ("$ref", *_UNIONS):
            if name in self._said and len(self._said) > 1:
                other = min(self._said - {name})
                self._refuse(other, f"The keyword {other} is not enforced beside {name} in this notation.")
        if not str(self._schema.get("$ref", "#")).startswith("#"):
            self._refuse("$ref", "A reference to another document is not supported.")
        if len(self._schema.get("allOf", ())) > 1:
            self._refuse("allOf", "More than one schema in allOf is not enforced in this notation.")
        kinds = [part.get("type") if isinstance(part, Mapping) else None for part in self._schema.get("oneOf", ())]
        names = [kind if isinstance(kind, str) else "" for kind in kinds]
        if "" in names or len(set(names)) < len(names) or {"integer", "number"} <= set(names):
            self._refuse("oneOf", "oneOf is enforced in this notation only if each schema has a type of its own.")

    def _listed(self) -> None:
        other = self._said - {"type"}
        if len(other) > 1:
            name = min(other - {"enum", "const"}, default="const")
            self._refuse(name, f"The keyword {name} is not enforced beside listed values in this notation.")
        values = self._schema["enum"] if "enum" in self._said else [self._schema["const"]]
        if "type" in self._said and isinstance(values, list):
            for value in values:
                if not any(_is_of(value, kind) for kind in self._kinds()):
                    self._refuse("type", "A listed value is not of the type, which is not enforced in this notation.")

    def _typed(self) -> None:
        if "type" in self._said or not self._said or self._said & {"$ref", *_UNIONS}:
            return
        if not any(self._said <= set(names) for names in (_OBJECTS, _ARRAYS)):
            name = min(self._said)
            self._refuse(name, f"The keyword {name} is not enforced in this notation without a type.")

    def _objects(self) -> None:
        named = self._schema.get("properties") or {}
        for name in self._schema.get("required", ()):
            if name not in named:
                self._refuse("required", f"The required member {excerpt(name)} is not among the properties.")
        opening: list[str] = [name for name in ("patternProperties", "propertyNames") if name in self._said]
        if self._schema.get("additionalProperties", False) is not False:
            opening.append("additionalProperties")
        bound = [name for name in ("properties", "minProperties", "maxProperties") if self._schema.get(name)]
        if opening and bound:
            self._refuse(opening[0], f"{opening[0]} beside {bound[0]}: members may come twice in this notation.")
        if len(opening) > 1:
            self._refuse(opening[1], f"The keyword {opening[1]} is not enforced beside {opening[0]} in this notation.")

    def _strings(self, excludes: bool) -> None:
        groups: list[str] = [name for name in ("pattern", "format") if name in self._said]
        groups += [name for name in _LENGTHS if name in self._said][:1]
        if len(groups) > 1:
            self._refuse(groups[1], f"The keyword {groups[1]} is not enforced beside {groups[0]} in this notation.")
        if excludes and groups:
            self._refuse(groups[0], f"The keyword {groups[0]} is not enforced beside excluded texts.")
        if "format" in self._said and self._schema["format"] not in _FORMATS:
            self._refuse("format", f"The format {excerpt(str(self._schema['format']))} is not enforced.")
        check_anchors(self._schema.get("pattern"), child(self._place, "pattern"))
        for pattern in self._schema.get("patternProperties") or ():
            check_anchors(pattern, child(self._place, "patternProperties", pattern))

    def _kinds(self) -> list[str]:
        kind = self._schema["type"]
        return kind if isinstance(kind, list) else [kind]

    def _refuse(self, name: str, message: str, hint: str | None = None) -> None:
        raise UnsupportedSchema(message, location=child(self._place, name), hint=hint)


def _schemas(schema: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema object in a schema with its JSON Pointer, the outer ones first."""
    if not isinstance(schema, Mapping):
        return
    yield place, schema
    for name in ("properties", "patternProperties", "$defs", "definitions"):
        if isinstance(schema.get(name), Mapping):
            for key, part in schema[name].items():
                yield from _schemas(part, child(place, name, key))
    for name in (*_UNIONS, "prefixItems"):
        for index, part in enumerate(schema[name] if isinstance(schema.get(name), list) else ()):
            yield from _schemas(part, child(place, name, str(index)))
    for name in ("items", "additionalProperties", "propertyNames"):
        yield from _schemas(schema.get(name), child(place, name))


def _is_of(value: Any, kind: Any) -> bool:
    known = _TYPES.get(str(kind))
    if isinstance(value, bool):
        return known is bool
    return known is not None and (isinstance(value, known))
