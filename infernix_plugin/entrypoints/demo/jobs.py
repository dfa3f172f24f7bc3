"""The demo's jobs: what is asked, under which constraint, and a check that shares no code with the plugin."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PERSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"type": "string", "minLength": 1, "maxLength": 24},
        "languages": {
            "type": "array",
            "items": {"enum": ["English", "French", "Portuguese"]},
            "minItems": 1,
            "maxItems": 3,
        },
    },
    "required": ["name", "age", "city", "languages"],
    "additionalProperties": False,
}
WEATHER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 24},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
MISTAKEN_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"age": {"type": "integer", "minimun": 0}}}
MISTAKE_LOCATION = "#/properties/age/minimun"
MOODS = ["positive", "negative", "neutral"]
DATE = "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
COMMAND_GRAMMAR = """\
# A command for the house, such as: turn on the lamp in the kitchen at 07:30.
root   ::= action " the " device (" in the " room)? (" at " time)? "."
action ::= "turn on" | "turn off"
device ::= "lamp" | "heater" | "radio"
room   ::= "kitchen" | "bedroom" | "garage"
time   ::= ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]
"""

PERSON_PROMPT = (
    "Maria Silva is 34 years old. She lives in Lisbon and speaks Portuguese and English.\n"
    "Write this person as JSON with the keys name, age, city and languages."
)

Check = Callable[[str], str | None]
"""Returns ``None`` for a valid output, else what is wrong with it."""


TOOLS = "tools"


@dataclass(frozen=True)
class Job:
    """One request. ``kind`` is a field of vLLM's structured outputs, :data:`TOOLS`, or ``None`` for a free answer."""

    title: str
    prompt: str
    kind: str | None
    constraint: Any
    check: Check
    streams: tuple[bool, ...] = (False,)
    """How a server is asked: whole answer, streamed, or both."""
    check_cut: Check | None = None
    """Check of an output that the length limit cut; ``None`` where the language is short and must be finished."""
    max_tokens: int = 160

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation, in the OpenAI form."""
        return [{"role": "user", "content": self.prompt}]

    @property
    def label(self) -> str:
        """How people call the constraint."""
        return {None: "none", "json": "json_schema"}.get(self.kind, self.kind or "")

    def request_fields(self) -> dict[str, Any]:
        """The constraint as arguments of ``chat.completions.create`` of the ``openai`` client."""
        match self.kind:
            case None:
                return {}
            case "json":
                form = {"name": "answer", "schema": self.constraint}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case "json_object":
                return {"response_format": {"type": "json_object"}}
            case "tools":
                return {"tools": self.constraint, "tool_choice": "required", "parallel_tool_calls": False}
        return {"extra_body": {"structured_outputs": {self.kind: self.constraint}}}

    def complaint(self, text: str, finish_reason: str | None) -> str | None:
        """Return what is wrong with an answer, or ``None``."""
        if finish_reason == ("tool_calls" if self.kind == TOOLS else "stop"):
            return self.check(text)
        if finish_reason == "length" and self.check_cut is not None:
            return self.check_cut(text)
        return f"finish reason {finish_reason}"


def jobs() -> list[Job]:
    """Every kind of constraint, streamed and not, and one free answer to the first question."""
    return [
        Job("a person, no constraint", PERSON_PROMPT, None, None, check_person),
        Job("a person", PERSON_PROMPT, "json", PERSON_SCHEMA, check_person, streams=(False, True)),
        Job(
            "classify a review",
            "Is this review positive, negative or neutral? The soup was cold and the waiter was rude.",
            "choice",
            MOODS,
            check_mood,
        ),
        Job(
            "pull a date",
            "Invoice 881 was issued on 2023-05-17 and paid two weeks later. When was it issued?",
            "regex",
            DATE,
            check_date,
            streams=(True,),
        ),
        Job(
            "a house command",
            "Repeat this command: turn on the heater in the bedroom at 06:45.",
            "grammar",
            COMMAND_GRAMMAR,
            check_command,
            streams=(True,),
        ),
        Job(
            "any JSON object",
            "Write the colour and the number of wheels of a red car as JSON.",
            "json_object",
            True,
            check_object,
            check_cut=check_object_so_far,
        ),
    ]


def call_jobs() -> list[Job]:
    """A strict tool that has to be called, for models with Qwen's form of calls; ``check`` gets the calls as lines."""
    tool = {"name": "get_weather", "parameters": WEATHER_SCHEMA, "strict": True}
    return [
        Job(
            "call a tool",
            "What will the weather be in Lisbon on the next three days?",
            TOOLS,
            [{"type": "function", "function": tool}],
            check_call,
            streams=(False, True),
        )
    ]


def check_person(text: str) -> str | None:
    """JSON that the ``jsonschema`` package accepts under ``PERSON_SCHEMA``."""
    return _check_json(text, PERSON_SCHEMA)


def check_call(text: str) -> str | None:
    """One line with the name, a colon and arguments that ``jsonschema`` accepts under ``WEATHER_SCHEMA``."""
    name, colon, arguments = text.partition(": ")
    if name != "get_weather" or not colon:
        return "not one call of get_weather"
    return _check_json(arguments, WEATHER_SCHEMA)


def _check_json(text: str, schema: dict[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator

    try:
        value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    problem = next(iter(Draft202012Validator(schema).iter_errors(value)), None)
    return None if problem is None else problem.message


def check_mood(text: str) -> str | None:
    """One of the choices, nothing around it."""
    return None if text in MOODS else "not one of the choices"


def check_date(text: str) -> str | None:
    """Python's own ``re``, on the whole text."""
    return None if re.fullmatch(DATE, text) else "does not match the pattern"


def check_command(text: str) -> str | None:
    """The little language of ``COMMAND_GRAMMAR``, read by hand."""
    body, dot, rest = text.partition(".")
    if dot != "." or rest:
        return "must end with its only full stop"
    body, at, time = body.partition(" at ")
    if at:
        hours, colon, minutes = time.partition(":")
        if not (colon and _two_digits_below(hours, 24) and _two_digits_below(minutes, 60)):
            return f"{time!r} is no time"
    body, inside, room = body.partition(" in the ")
    if inside and room not in ("kitchen", "bedroom", "garage"):
        return f"{room!r} is no room"
    action, the, device = body.partition(" the ")
    if action not in ("turn on", "turn off") or not the or device not in ("lamp", "heater", "radio"):
        return "not an action and a device"
    return None


def check_object(text: str) -> str | None:
    """JSON whose value is an object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return None if isinstance(value, dict) else "not an object"


def check_object_so_far(text: str) -> str | None:
    """The beginning of a JSON object: some short ending makes it one."""
    closers = "".join(reversed(_open_brackets(text)))
    endings = (token + member + closers for token in _TOKEN_ENDINGS for member in _MEMBER_ENDINGS)
    return None if any(check_object(text + ending) is None for ending in endings) else "not the beginning of an object"


_TOKEN_ENDINGS = [
    "",
    '"',
    *(digits + '"' for digits in ("0", "00", "000", "0000")),  # inside \uXXXX
    '""',  # after a backslash: the escaped quote, then the closing one
    "0",  # after "-", "1." or "1e"
    *(word[cut:] for word in ("true", "false", "null") for cut in range(1, len(word))),
]
_MEMBER_ENDINGS = ["", ":0", "0", '"":0', "{}"]


def _open_brackets(text: str) -> list[str]:
    """Return the closing brackets that are still owed, outermost first."""
    owed: list[str] = []
    for token in re.finditer(r'"(?:[^"\\]|\\.)*(?:"|\\?$)|[][{}]', text, re.DOTALL):
        match token.group():
            case "{":
                owed.append("}")
            case "[":
                owed.append("]")
            case "}" | "]":
                del owed[-1:]
    return owed


def _two_digits_below(text: str, limit: int) -> bool:
    return len(text) == 2 and text.isascii() and text.isdigit() and int(text) < limit
