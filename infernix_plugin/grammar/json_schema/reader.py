"""Read a JSON Schema document: order-preserving, strict JSON, addressed by JSON Pointer."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from infernix_plugin.errors import ConstraintTooLarge, InvalidSchema, excerpt
from infernix_plugin.grammar.json_schema.json_value import ROOT, Json, Number, child
from infernix_plugin.grammar.json_schema.references import References
from infernix_plugin.grammar.options import GrammarOptions

_TOKENS = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]|-?Infinity|NaN', re.DOTALL)


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
    if repeated:
        owner, name = repeated[0]
        raise InvalidSchema(
            f"The key {excerpt(name)} occurs twice in one object", location=child(_find(root, owner), name)
        )
    document = Document(root)
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
        self.references = References(root)
        self._values: dict[str, Json] = {ROOT: root}

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


def fail(message: str, location: str, hint: str | None = None) -> NoReturn:
    """Raise :class:`~infernix_plugin.errors.InvalidSchema`."""
    raise InvalidSchema(message, location=location, hint=hint)
