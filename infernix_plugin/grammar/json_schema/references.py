"""The schema resources of a document, and what a reference in one of them means.

A schema with an identity (``$id``) is a resource of its own, wherever it stands: references inside are relative to its
URI, a fragment is looked up in it, and it may be written in another dialect. Only places where a schema stands can be
one: what ``enum``, ``default`` or an unknown keyword holds is not looked into. Nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from infernix_plugin.errors import ConstraintTooLarge, InvalidSchema, UnsupportedSchema, excerpt
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.json_schema import uri
from infernix_plugin.grammar.json_schema.json_value import ROOT, Json, child, shown

LEGACY = ("draft-04", "draft-06", "draft-07")
"""The dialects in which a ``$ref`` switches off the keywords beside it."""
_LATEST = "2020-12"
_DIALECTS = {
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": _LATEST,
    "json-schema.org/schema": _LATEST,
}
_BASE = "document://unnamed/0/1/2/3/4/5/6/7/8/9/"  # RFC 3986, 5.1.4: what a relative identity is relative to
_IN_PLACE_OF_A_SCHEMA = {
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
}
_IN_AN_ARRAY = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_BY_NAME = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
_RECURSIVE = ""  # how $recursiveAnchor: true names its resource; no other name is empty
_MAX_SCOPES = 256


@dataclass(frozen=True, eq=False, slots=True)
class Resource:
    """One schema resource.

    Attributes:
        pointer: its place in the document.
        schema: what stands there.
        uri: its identity, absolute and without a fragment.
        dialect: ``draft-04`` to ``2020-12``.
        certain: whether every dialect that the document may be written in has this resource.
        anchors: plain names and the places they name; more than one place is a fault if it is referred to.
        dynamic: the names of ``$dynamicAnchor`` among them.
    """

    pointer: str
    schema: Json
    uri: str
    dialect: str
    certain: bool
    anchors: dict[str, list[str]] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)


class References:
    """The resources of one document.

    Raises:
        UnsupportedSchema: a ``$schema`` that names a dialect we do not know, or one that its place cannot have.
    """

    def __init__(self, root: Json) -> None:
        self._root = root
        declared = root.get("$schema") if isinstance(root, dict) else None
        self.declares_dialect = declared is not None
        self.dialect = _LATEST if declared is None else _dialect(declared, ROOT)
        self._resources: dict[str, Resource] = {}
        self._by_uri: dict[str, list[Resource]] = {}
        self._nearest: dict[str, Resource] = {}
        self._scopes: list[dict[str, str]] = [{}]
        self._index()

    # Resources --------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        """Find the resources and their names; afterwards every place with a schema has its nearest resource."""
        identity = self._identity(self._root, self.dialect) or ""
        self._add(Resource(ROOT, self._root, uri.resolve(_BASE, identity)[0], self.dialect, certain=True))
        pending = [(ROOT, self._root, self._resources[ROOT])]
        for pointer, schema, resource in budget.drained(pending):
            if isinstance(schema, dict):
                resource = self._entered(pointer, schema, resource)
                pending.extend((place, inner, resource) for place, inner in subschemas(pointer, schema))
            self._nearest[pointer] = resource
        owners = Counter(name for resource in self._resources.values() for name in resource.dynamic)
        self._ambiguous = {name for name, count in owners.items() if count > 1}

    def _add(self, resource: Resource) -> None:
        self._resources[resource.pointer] = resource
        self._by_uri.setdefault(resource.uri, []).append(resource)

    def _entered(self, pointer: str, schema: dict[str, Json], resource: Resource) -> Resource:
        """The resource that the schema belongs to, after noting the names it has."""
        identity = self._identity(schema, resource.dialect) if pointer != ROOT else None
        dialect = resource.dialect
        if "$schema" in schema and pointer != ROOT:
            dialect = _dialect(schema["$schema"], pointer)
        if identity is not None:
            certain = resource.certain and (self.declares_dialect or "$id" in schema)
            resource = Resource(pointer, schema, uri.resolve(resource.uri, identity)[0], dialect, certain)
            self._add(resource)
        elif dialect != resource.dialect:
            raise UnsupportedSchema(
                f"$schema names another dialect than that of the resource, {resource.dialect}",
                location=child(pointer, "$schema"),
                hint="give the schema an $id of its own, or remove $schema",
            )
        if self._is_overridden(schema, dialect):
            return resource
        fragments = [uri.resolve("", value)[1] for value in map(schema.get, ("$id", "id")) if isinstance(value, str)]
        dynamic = schema.get("$dynamicAnchor")
        for name in (schema.get("$anchor"), dynamic, *fragments):
            if isinstance(name, str) and name and not name.startswith("/"):
                resource.anchors.setdefault(name, []).append(pointer)
        if isinstance(dynamic, str) and dynamic:
            resource.dynamic.add(dynamic)
        if schema.get("$recursiveAnchor") is True and pointer == resource.pointer:
            resource.anchors[_RECURSIVE] = [pointer]
            resource.dynamic.add(_RECURSIVE)
        return resource

    def _identity(self, schema: Json, dialect: str) -> str | None:
        """The reference that gives a schema an identity of its own."""
        if not isinstance(schema, dict):
            return None
        draft4 = dialect == "draft-04" or not self.declares_dialect
        identity = schema.get("$id", schema.get("id") if draft4 else None)
        if not isinstance(identity, str) or identity.startswith("#") or identity == "":
            return None
        return None if schema is not self._root and self._is_overridden(schema, dialect) else identity

    @staticmethod
    def _is_overridden(schema: dict[str, Json], dialect: str) -> bool:
        return dialect in LEGACY and isinstance(schema.get("$ref"), str)

    def resource(self, pointer: str) -> Resource:
        """The resource that a place belongs to."""
        while pointer not in self._nearest:
            pointer = pointer.rpartition("/")[0]
        return self._nearest[pointer]

    # References -------------------------------------------------------------------------------------------------

    def resolve(self, reference: str, location: str) -> str:
        """The pointer that a reference means; ``location`` is the pointer of the keyword it is the value of.

        Raises:
            InvalidSchema: it points to nothing.
            UnsupportedSchema: it leaves the document, or it is not clear where it leads.
        """
        readings = [self.resource(location)]
        while not readings[-1].certain:  # nor is it known then whether the reference is relative to it
            readings.append(self.resource(readings[-1].pointer.rpartition("/")[0]))
        found: set[str] = set()
        for current in (readings[0], readings[-1]):
            try:
                found.add(self._resolve_in(current, reference, location))
            except (InvalidSchema, UnsupportedSchema):
                if current is readings[-1] and not found:
                    raise
        if len(found) > 1:
            raise UnsupportedSchema(
                f"A reference below an id is relative to it in draft-04 only: {excerpt(reference)}",
                location=location,
                hint="declare the dialect in $schema, or remove the id",
            )
        return found.pop()

    def _resolve_in(self, current: Resource, reference: str, location: str) -> str:
        keyword = location.rpartition("/")[2]
        target, fragment = uri.resolve(current.uri, reference)
        resources = [current] if target == current.uri and reference.startswith("#") else self._by_uri.get(target, [])
        if not resources:
            raise UnsupportedSchema(
                f"{keyword} leaves the document: {excerpt(reference)}",
                location=location,
                hint="external documents are never fetched; copy the schema into $defs",
            )
        if len(resources) > 1:
            raise UnsupportedSchema(
                f"{keyword} to an $id that several schemas have: {excerpt(reference)}",
                location=location,
                hint="give each of them an $id of its own",
            )
        fragment = unquote(fragment or "")
        if fragment == "" or fragment.startswith("/"):
            return self._follow(resources[0], fragment, reference, location)
        places = resources[0].anchors.get(fragment, [])
        if len(places) != 1:
            raise UnsupportedSchema(
                f"{keyword} to the anchor {excerpt(fragment)}, which is {'repeated' if places else 'nowhere'}",
                location=location,
                hint="refer to it by JSON Pointer, for example #/$defs/name",
            )
        return places[0]

    def resolve_dynamic(self, reference: str, location: str, scope: str) -> str:
        """The same for ``$dynamicRef``, from a place that is read in the ``scope``."""
        target = self.resolve(reference, location)
        name = unquote(uri.resolve("", reference)[1] or "")
        return self._first(name, target, scope) if name else target

    def resolve_recursive(self, location: str, scope: str) -> str:
        """The same for ``$recursiveRef``, whose value is always ``#``."""
        return self._first(_RECURSIVE, self.resource(location).pointer, scope)

    def _first(self, name: str, target: str, scope: str) -> str:
        resource = self.resource(target)
        if name in resource.dynamic and resource.anchors[name] == [target]:
            return self._scopes[_number(scope)].get(name, target)
        return target

    def _follow(self, resource: Resource, fragment: str, reference: str, location: str) -> str:
        pointer, value = resource.pointer, resource.schema
        inside: list[Json] = []  # what lies inside of something that is no schema
        for encoded in fragment.split("/")[1:]:
            token = encoded.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", token) and int(token) < len(value):
                value = value[int(token)]
            else:
                raise InvalidSchema(
                    f"{location.rpartition('/')[2]} points to nothing: {excerpt(reference)}",
                    location=location,
                    hint=None if resource.pointer == ROOT else f"it is relative to the $id at {resource.pointer}",
                )
            pointer = child(pointer, token)
            inside = [] if pointer in self._nearest else [*inside, value]
        if inside and any(map(self._is_named, [*inside, *_below(value)])):
            raise UnsupportedSchema(
                f"The place has an $id or an anchor, but only a reference makes it a schema: {excerpt(reference)}",
                location=location,
                hint="move the schema into $defs",
            )
        return pointer

    def _is_named(self, value: Json) -> bool:
        named = isinstance(value, dict) and any(
            isinstance(value.get(name), str) for name in ("$anchor", "$dynamicAnchor")
        )
        return named or self._identity(value, self.dialect) is not None

    # Dynamic scopes ---------------------------------------------------------------------------------------------

    def enter(self, place: str) -> tuple[str, str]:
        """The scope of a place and its pointer, once the schema there is being read.

        A scope says for every name that several resources give to a ``$dynamicAnchor`` which of them came first. It
        is written in front of the pointer; the scope of all places of a document without such names is empty.
        """
        start = place.index(ROOT)
        pointer, scope = place[start:], place[:start]
        if not self._ambiguous:
            return scope, pointer
        known = self._scopes[_number(scope)]
        resource = self.resource(pointer)
        found = {name: resource.anchors[name][0] for name in resource.dynamic & self._ambiguous} | known
        if found not in self._scopes:
            if len(self._scopes) == _MAX_SCOPES:
                raise ConstraintTooLarge(f"The document needs more than {_MAX_SCOPES} dynamic scopes", location=pointer)
            self._scopes.append(found)
        index = self._scopes.index(found)
        return str(index) if index else "", pointer


def _number(scope: str) -> int:
    return int(scope or 0)


def _dialect(declared: Json, pointer: str) -> str:
    name = re.sub(r"^https?://|#$", "", declared) if isinstance(declared, str) else ""
    if name not in _DIALECTS:
        raise UnsupportedSchema(
            f"$schema names a dialect that is not supported: {shown(declared)}",
            location=child(pointer, "$schema"),
            hint="use https://json-schema.org/draft/2020-12/schema, or leave $schema out",
        )
    return _DIALECTS[name]


def subschemas(pointer: str, schema: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """The schemas directly inside a schema, in their order, with their places."""
    for keyword, value in schema.items():
        location = child(pointer, keyword)
        if keyword in _IN_PLACE_OF_A_SCHEMA and isinstance(value, dict):
            yield location, value
        elif keyword in _BY_NAME and isinstance(value, dict):
            yield from ((child(location, name), inner) for name, inner in value.items())
        elif keyword in _IN_AN_ARRAY and isinstance(value, list):
            yield from ((child(location, index), inner) for index, inner in enumerate(value))


def _below(value: Json) -> Iterator[Json]:
    pending = [value]
    for schema in budget.drained(pending):
        if isinstance(schema, dict):
            yield schema
            pending.extend(inner for _, inner in subschemas(ROOT, schema))
