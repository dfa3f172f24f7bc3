"""How the value of an argument is written in a call, and what JSON it is read back as.

A call writes every value as plain text, so the type decides what ``12`` or ``null`` is. One rule for every argument:

- a string type: the text itself;
- other types: the JSON text;
- both, or no type: JSON if the text is JSON of one of the other types, else the text itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NoReturn

from infernix_plugin.grammar.json_schema.json_value import kind_of

KINDS = frozenset({"object", "array", "string", "number", "boolean", "null"})
_BLANKS = " \t\n\r"
_PYTHON_WORDS = {"True": ("boolean", "true"), "False": ("boolean", "false"), "None": ("null", "null")}


class Written(Enum):
    """When it is known what a value's JSON is."""

    TEXT = auto()
    """From the start: a string, character by character."""
    JSON = auto()
    """From the start: the text is its JSON."""
    DECIDED_AT_END = auto()
    """When the value ends."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one argument's values are written.

    ``kinds`` are the JSON types that a value may have. A ``lenient`` reader passes over blanks around JSON and takes
    ``True``, ``False`` and ``None`` for what they mean, as models write them where nothing constrains them.
    """

    written: Written
    kinds: frozenset[str] = KINDS
    lenient: bool = False

    def json_of(self, text: str) -> str:
        """The JSON text of the value that was written as ``text``."""
        if self.written is Written.JSON:
            return text
        if self.written is Written.DECIDED_AT_END:
            value = text.strip(_BLANKS) if self.lenient else text
            kind = _kind_of(value)
            if kind is None and self.lenient:
                kind, value = _PYTHON_WORDS.get(value, (None, value))
            if kind is not None and kind in self.kinds - {"string"}:
                return value
        return json.dumps(text, ensure_ascii=False)


TEXT = Encoding(Written.TEXT, frozenset({"string"}))
UNTYPED = Encoding(Written.DECIDED_AT_END, lenient=True)


def declared_encodings(parameters: str | None) -> dict[str, Encoding]:
    """How the declared arguments of a function are read whose schema is not enforced; others are :data:`UNTYPED`.

    The schema only gives types here: it may be anything, also malformed.
    """
    try:
        schema = json.loads(parameters or "{}")
    except (ValueError, RecursionError):
        return {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: _of_kinds(_declared_kinds(schema, declared)) for name, declared in properties.items()}


def _of_kinds(kinds: frozenset[str] | None) -> Encoding:
    if kinds is None:
        return UNTYPED
    return TEXT if kinds == {"string"} else Encoding(Written.DECIDED_AT_END, kinds, lenient=True)


def _declared_kinds(document: Mapping[str, Any], schema: Any) -> frozenset[str] | None:
    """The JSON types that a schema speaks of, ``None`` if it speaks of none. Every part is looked at once."""
    found: set[str] = set()
    seen: set[int] = set()
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        names = part.get("type")
        if names is not None:
            named = [names] if isinstance(names, str) else names if isinstance(names, list) else []
            found |= {"number" if name == "integer" else name for name in named if isinstance(name, str)} & KINDS
        elif "const" in part or isinstance(part.get("enum"), list):
            found |= set(map(kind_of, [part["const"]] if "const" in part else part["enum"]))
        else:
            for keyword in ("anyOf", "oneOf", "allOf"):
                parts = part.get(keyword)
                pending += parts if isinstance(parts, list) else []
            reference = part.get("$ref")
            if isinstance(reference, str):
                pending.append(_resolved(document, reference))
    return frozenset(found) or None


def _resolved(document: Any, reference: str) -> Any:
    if not reference.startswith("#"):
        return None
    place = document
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, dict) else None
    return place


def _kind_of(text: str) -> str | None:
    """The JSON type of the value that ``text`` is; ``None`` if it is no JSON, has blanks around it or is not finite."""
    if text != text.strip(_BLANKS):
        return None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return kind_of(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
