"""Many constraints for soak runs, with checks of whole outputs and of cut ones that share no code with the plugin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema
import regex

from tests.oracles.languages import CHOICES, GRAMMAR, LANGUAGES, begins_an_object


@dataclass(frozen=True)
class SoakLanguage:
    """One constraint; ``field`` and ``value`` as in vLLM's ``StructuredOutputsParams``."""

    name: str
    field: str
    value: Any
    member: Callable[[str], bool]
    prefix: Callable[[str], bool]
    exact_prefix: bool
    """Whether ``prefix`` decides the language's prefixes, or only a part of what they have to be."""


def _expression(name: str, field: str, value: Any, pattern: str) -> SoakLanguage:
    compiled = regex.compile(pattern)
    return SoakLanguage(
        name,
        field,
        value,
        lambda text: compiled.fullmatch(text) is not None,
        lambda text: compiled.fullmatch(text, partial=True) is not None,
        exact_prefix=True,
    )


def _regex(name: str, pattern: str) -> SoakLanguage:
    return _expression(name, "regex", pattern, pattern)


def _choice(name: str, choices: list[str]) -> SoakLanguage:
    return SoakLanguage(
        name,
        "choice",
        choices,
        choices.__contains__,
        lambda text: any(choice.startswith(text) for choice in choices),
        exact_prefix=True,
    )


def _schema(name: str, schema: dict[str, Any]) -> SoakLanguage:
    validator = jsonschema.Draft202012Validator(schema)
    is_open = isinstance(schema.get("additionalProperties"), dict)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Refuse names that occur twice, but for undeclared ones: of those the last counts (docs/support.md)."""
        times = Counter(name for name, _ in pairs)
        if any(count > 1 and not (is_open and name not in schema["properties"]) for name, count in times.items()):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    def member(text: str) -> bool:
        try:
            value = json.loads(text, object_pairs_hook=members, parse_constant=_refuse)
        except ValueError:
            return False
        return bool(validator.is_valid(value))

    return SoakLanguage(name, "json", schema, member, begins_an_object, exact_prefix=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


_NAME = {"type": "string", "minLength": 1, "maxLength": 12}
_SUM = """\
root ::= term (" + " term){0,5}
term ::= [1-9] [0-9]{0,2} | "(" root ")"
"""
_SUM_PATTERN = r"(?<sum>(?<term>[1-9][0-9]{0,2}|\((?&sum)\))(?: \+ (?&term)){0,5})"
_MOVES_PATTERN = r"\[(?<move>(?:north|south|east|west)[1-9][0-9]?|\((?&move)\))(?:, (?&move)){0,3}\]"

_ITEM = _closed(
    {
        "product": {"enum": ["book", "lamp", "chair"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "price": {"type": "number", "minimum": 0, "maximum": 1000},
    }
)
_SCHEMAS: dict[str, dict[str, Any]] = {
    "order": _closed(
        {
            "customer": _NAME,
            "items": {"type": "array", "minItems": 1, "maxItems": 4, "items": _ITEM},
            "paid": {"type": "boolean"},
        }
    ),
    "either": {
        "type": "object",
        "anyOf": [
            _closed({"kind": {"const": "a"}, "text": {"type": "string", "pattern": "^[a-z ]{1,20}$"}}),
            _closed({"kind": {"const": "b"}, "value": {"type": ["integer", "null"]}}),
        ],
    },
    "open": {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string", "maxLength": 30}},
        "required": ["id", "note"],
        "maxProperties": 4,
        "additionalProperties": {"type": "boolean"},
    },
    "unique": _closed(
        {
            "tags": {
                "type": "array",
                "uniqueItems": True,
                "minItems": 2,
                "maxItems": 3,
                "items": {"enum": ["red", "green", "blue", "grey"]},
            },
            "step": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 500},
        }
    ),
}


def _known(name: str) -> SoakLanguage:
    language = LANGUAGES[name]
    return SoakLanguage(name, language.field, language.value, language.member, begins_an_object, exact_prefix=False)


SOAK_LANGUAGES = [
    _choice("choice", CHOICES),
    _choice(
        "sentences", [f"The {noun} is {word}." for noun in ("river", "tree") for word in ("old", "very old", "blue")]
    ),
    _regex("date", r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9](T[0-9]{2}:[0-9]{2})?"),
    _regex("words", r"[A-Za-z]{1,12}( [a-z]{1,12}){3,20}[.!?]"),
    _regex("version", r"v?[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-(alpha|beta|rc)(\.[0-9]{1,2})?)?"),
    _regex("any script", r"[^ \n0-9\"\\]{5,40}"),
    _expression("moves", "grammar", GRAMMAR, _MOVES_PATTERN),
    _expression("sum", "grammar", _SUM, _SUM_PATTERN),
    _known("json_object"),
    _known("json_schema"),
    *(_schema(name, schema) for name, schema in _SCHEMAS.items()),
]
"""Every kind of constraint, short and long, forced and free."""
