"""Read a JSON Schema document: order-preserving, strict JSON, addressed by JSON Pointer.

Numbers keep their source text, because ``1.0`` and ``1`` are the same number but not the same output. Every other
module speaks of a place in the document by its pointer, the URI fragment form of RFC 6901 (``#/properties/a``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn
from urllib.parse import unquote, urldefrag, urljoin

from infernix_plugin.errors import ConstraintTooLarge, InvalidSchema, UnsupportedSchema, excerpt
from infernix_plugin.grammar.options import GrammarOptions

Json = Any
"""``None``, ``bool``, ``str``, :class:`Number`, ``list`` or ``dict`` of the same."""

ROOT = "#"
_MAX_EXPONENT = 400  # beyond binary64 on both sides, and small enough to compute with exactly
_MAX_NUMBER_LENGTH = 1000
_TOKENS = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]|-?Infinity|NaN', re.DOTALL)
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}
_DIALECTS = {
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/schema": "2020-12",
}


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was written."""

    text: str

    @property
    def is_integer_text(self) -> bool:
        """Written without a point and an exponent, so that parsers may keep it exact."""
        return self.text.lstrip("-").isdigit()

    @property
    def value(self) -> Fraction | None:
        """The exact value, or ``None`` when it is far outside binary64 or absurdly long."""
        if len(self.text) > _MAX_NUMBER_LENGTH:
            return None
        try:
            decimal = Decimal(self.text)
        except InvalidOperation:
            return None
        if not decimal.is_finite() or (decimal and abs(decimal.adjusted()) > _MAX_EXPONENT):
            return None
        return Fraction(decimal)


def shown(value: Json) -> str:
    """A value as a message names it, cut to a bounded length."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number():
            return excerpt(value.text)
        case str():
            return excerpt(value)
        case _:
            return f"an {kind_of(value)}"


def kind_of(value: Json) -> str:
    """The JSON type of a value: ``null``, ``boolean``, ``number``, ``string``, ``array`` or ``object``."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case Number():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def identity(value: Json) -> Hashable:
    """Equal for equal JSON values and only for them: numbers by value, objects without regard to order."""
    kind = kind_of(value)
    match value:
        case Number():
            return kind, value.text if value.value is None else value.value
        case list():
            return kind, tuple([identity(item) for item in value])
        case dict():
            return kind, frozenset([(name, identity(item)) for name, item in value.items()])
    return kind, value


def child(pointer: str, *tokens: str | int) -> str:
    """The pointer of a place below ``pointer``."""
    return "/".join([pointer, *(str(token).replace("~", "~0").replace("/", "~1") for token in tokens)])


def read(text: str, options: GrammarOptions) -> Document:
    """Read schema text.

    Raises:
        InvalidSchema: not JSON (location ``line:column``), or a repeated key (location is its pointer).
        ConstraintTooLarge: longer than ``max_schema_bytes`` or nested deeper than ``max_nesting``.
        UnsupportedSchema: ``$schema`` names a dialect that we do not know.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > options.max_schema_bytes:
        raise ConstraintTooLarge(
            f"The schema has {size} bytes; the limit max_schema_bytes is {options.max_schema_bytes}"
        )
    _scan(text, options.max_nesting)
    repeated: list[tuple[dict[str, Json], str]] = []

    def build(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        members = dict(pairs)
        if len(members) < len(pairs):
            seen: set[str] = set()
            repeated.append((members, next(name for name, _ in pairs if name in seen or seen.add(name))))  # type: ignore[func-returns-value]
        return members

    try:
        root = json.loads(text, object_pairs_hook=build, parse_int=Number, parse_float=Number)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"The schema is not JSON: {error.msg}", location=f"{error.lineno}:{error.colno}") from None
    document = Document(root)
    if repeated:
        owner, name = repeated[0]
        raise InvalidSchema(
            f"The key {excerpt(name)} occurs twice in one object", location=child(_find(root, owner), name)
        )
    document.dialect  # noqa: B018  an unknown dialect is refused now, not when a keyword first asks
    document.schema_at(ROOT)
    return document


def _scan(text: str, max_nesting: int) -> None:
    """Refuse what the standard parser would accept (NaN, Infinity) or recurse into too deeply."""
    if text.count("[") + text.count("{") <= max_nesting and "NaN" not in text and "Infinity" not in text:
        return
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
            if depth > max_nesting:
                raise ConstraintTooLarge(
                    f"The schema is nested deeper than the limit max_nesting of {max_nesting} levels",
                    location=_line_and_column(text, token.start()),
                )
        elif token[0] in ("]", "}"):
            depth -= 1
        elif not token[0].startswith('"'):
            raise InvalidSchema(f"{token[0]} is not JSON", location=_line_and_column(text, token.start()))


def _line_and_column(text: str, offset: int) -> str:
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"


def _find(root: Json, wanted: Json) -> str:
    """The pointer of the object ``wanted`` (by identity) below ``root``."""
    pending = [(ROOT, root)]
    while pending:
        pointer, value = pending.pop()
        if value is wanted:
            return pointer
        if isinstance(value, dict):
            pending.extend((child(pointer, name), item) for name, item in value.items())
        elif isinstance(value, list):
            pending.extend((child(pointer, index), item) for index, item in enumerate(value))
    return ROOT  # it was overwritten by a later duplicate of an outer key


class Document:
    """A schema document and the places in it."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self._values: dict[str, Json] = {ROOT: root}

    @cached_property
    def dialect(self) -> str:
        """``draft-04`` to ``2020-12``; the latter when the document does not say."""
        declared = self.root.get("$schema") if isinstance(self.root, dict) else None
        if declared is None:
            return "2020-12"
        name = re.sub(r"^https?://|#$", "", declared) if isinstance(declared, str) else ""
        if name not in _DIALECTS:
            raise UnsupportedSchema(
                f"$schema names a dialect that is not supported: {shown(declared)}",
                location=child(ROOT, "$schema"),
                hint="use https://json-schema.org/draft/2020-12/schema, or leave $schema out",
            )
        return _DIALECTS[name]

    @property
    def declares_dialect(self) -> bool:
        """Whether ``$schema`` is there."""
        return isinstance(self.root, dict) and "$schema" in self.root

    def at(self, pointer: str) -> Json:
        """The value at a pointer that is known to exist."""
        if pointer not in self._values:
            parent, _, token = pointer.rpartition("/")
            owner = self.at(parent)
            token = token.replace("~1", "/").replace("~0", "~")
            self._values[pointer] = owner[int(token)] if isinstance(owner, list) else owner[token]
        return self._values[pointer]

    def schema_at(self, pointer: str) -> dict[str, Json] | bool:
        """The value at a pointer that is known to exist, if it is a schema.

        Raises:
            InvalidSchema: it is not.
        """
        value = self.at(pointer)
        if not isinstance(value, dict | bool):
            fail("A schema must be an object or a boolean", pointer)
        return value

    def resolve(self, reference: str, location: str) -> str:
        """The pointer that ``$ref`` means; ``location`` is the pointer of the ``$ref`` keyword itself."""
        base = self.root.get("$id", self.root.get("id", "")) if isinstance(self.root, dict) else ""
        base = urldefrag(base).url if isinstance(base, str) else ""
        target = reference if reference.startswith("#") else urljoin(base, reference)
        resource, fragment = urldefrag(target)
        if resource not in ("", base):
            raise UnsupportedSchema(
                f"$ref leaves the document: {excerpt(reference)}",
                location=location,
                hint="external documents are never fetched; copy the schema into $defs",
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            places = self._anchors.get(fragment, [])
            if len(places) != 1:
                raise UnsupportedSchema(
                    f"$ref to the anchor {excerpt(fragment)}, which is {'repeated' if places else 'nowhere'}",
                    location=location,
                    hint="refer to it by JSON Pointer, for example #/$defs/name",
                )
            return places[0]
        return self._follow(fragment, reference, location)

    def is_self_contained(self, value: Json) -> bool:
        """Whether no reference stands in ``value``, so that its own identity changes nothing."""
        return id(value) not in self._referring

    @cached_property
    def _referring(self) -> set[int]:
        """The objects and arrays, by identity, with a reference somewhere inside."""
        found: set[int] = set()
        pending: list[tuple[Json, bool]] = [(self.root, False)]
        while pending:
            value, ready = pending.pop()
            inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
            if ready:
                if any(id(item) in found for item in inner) or (isinstance(value, dict) and _REFERENCES & value.keys()):
                    found.add(id(value))
            elif isinstance(value, dict | list):
                pending.append((value, True))
                pending.extend((item, False) for item in inner)
        return found

    @cached_property
    def _anchors(self) -> dict[str, list[str]]:
        """The places that ``$anchor`` names, or ``$id`` and ``id`` with a bare fragment, outside nested resources."""
        found: dict[str, list[str]] = {}
        pending = [(ROOT, self.root)]
        while pending:
            pointer, value = pending.pop()
            if isinstance(value, dict):
                if pointer != ROOT and self._has_identity(value):
                    continue
                names: list[Json] = [value.get("$id"), value.get("id")]
                fragments = [name[1:] for name in names if isinstance(name, str) and name.startswith("#")]
                for name in (value.get("$anchor"), *fragments):
                    if isinstance(name, str) and name:
                        found.setdefault(name, []).append(pointer)
                pending.extend((child(pointer, name), item) for name, item in value.items())
            elif isinstance(value, list):
                pending.extend((child(pointer, index), item) for index, item in enumerate(value))
        return found

    def _has_identity(self, value: dict[str, Json]) -> bool:
        """Whether references inside ``value`` would be relative to it instead of the document."""
        keywords = ["$id"] if self.declares_dialect and self.dialect != "draft-04" else ["$id", "id"]
        names = (value.get(keyword) for keyword in keywords)
        return any(isinstance(name, str) and not name.startswith("#") for name in names)

    def _follow(self, fragment: str, reference: str, location: str) -> str:
        pointer, value = ROOT, self.root
        for encoded in fragment.split("/")[1:]:
            token = encoded.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", token) and int(token) < len(value):
                value = value[int(token)]
            else:
                raise _nowhere(reference, location)
            pointer = child(pointer, token)
            if isinstance(value, dict) and self._has_identity(value) and not self.is_self_contained(value):
                raise UnsupportedSchema(
                    f"$ref points into a nested resource with its own $id: {excerpt(reference)}",
                    location=location,
                    hint="remove the nested $id",
                )
        return pointer


def _nowhere(reference: str, location: str) -> InvalidSchema:
    return InvalidSchema(f"$ref points to nothing: {excerpt(reference)}", location=location)


def fail(message: str, location: str, hint: str | None = None) -> NoReturn:
    """Raise :class:`~infernix_plugin.errors.InvalidSchema`."""
    raise InvalidSchema(message, location=location, hint=hint)
