"""Small constraints for engine and server tests, each with a check that shares no code with the plugin.

A check gets the output text and whether it ended by itself. An output that the length limit cut must be the beginning
of a member, as far as the check can tell.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
    "$defs": {"inner": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": False}},
}
REGEX = r"(19|20)\d{2}-(0[1-9]|1[0-2])-[0-3][0-9](T[0-9]{2}:[0-9]{2})?"
CHOICES = ["positive", "negative", "neutral", "pos", "négatif ☂"]
GRAMMAR = """\
# lists of moves, nested
root ::= "[" move (", " move){0,3} "]"
move ::= dir [1-9] [0-9]? | "(" move ")"
dir  ::= "north" | "south" | "east" | "west"
"""
_MOVE = r"\(*(?:north|south|east|west)[1-9][0-9]?\)*"


@dataclass(frozen=True)
class Language:
    """``field`` and ``value`` as in vLLM's ``StructuredOutputsParams``."""

    field: str
    value: Any
    member: Callable[[str], bool]
    prefix: Callable[[str], bool]
    max_tokens: int = 200

    def check(self, text: str, finish_reason: str) -> None:
        """Assert that an output is in the language."""
        if finish_reason == "stop":
            assert self.member(text), f"not in the {self.field} language: {text!r}"
        else:
            assert finish_reason == "length", f"{finish_reason} after {text!r}"
            assert self.prefix(text), f"not a beginning of the {self.field} language: {text!r}"


def _is_schema_member(text: str) -> bool:
    try:
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    keys = [key for key, _ in json.loads(text, object_pairs_hook=list)]
    return len(keys) == len(set(keys))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_ENDINGS = [
    "",
    '"',
    '":0',
    '"":0',
    ":0",
    "0",
    "e",
    "ue",
    "rue",
    "se",
    "lse",
    "alse",
    "l",
    "ll",
    "ull",
    "true",
    '\\"',
    'u0000"',
] + ["0" * count + '"' for count in range(1, 5)]


def begins_an_object(text: str) -> bool:
    """Try to finish the text: one of a few endings of the last token, then the open brackets."""
    text = text.rstrip("\ufffd")
    if not text.strip():
        return True
    closers, inside, escaped = [], False, False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "{[":
            closers.append("}" if character == "{" else "]")
        elif character in "}]":
            closers.pop()
    close = "".join(reversed(closers))
    return any(_is_object(text + ending + middle + close) for ending in _ENDINGS for middle in ("", ":0"))


def _is_moves(text: str) -> bool:
    if not re.fullmatch(rf"\[{_MOVE}(?:, {_MOVE}){{0,3}}\]", text):
        return False
    return all(move.count("(") == move.count(")") for move in text[1:-1].split(", "))


LANGUAGES = {
    "json_schema": Language("json", SCHEMA, _is_schema_member, begins_an_object, max_tokens=600),
    "json_object": Language("json_object", True, _is_object, begins_an_object, max_tokens=120),
    "regex": Language("regex", REGEX, lambda text: bool(re.fullmatch(REGEX, text)), lambda text: False),
    "choice": Language("choice", CHOICES, CHOICES.__contains__, lambda text: False),
    "grammar": Language("grammar", GRAMMAR, _is_moves, lambda text: text.startswith("["), max_tokens=300),
}
