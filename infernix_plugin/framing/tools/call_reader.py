"""Reads the text of one call as it is generated, and writes its arguments as JSON fragments.

An enforced call is read by the same lines that its grammar is made of; anything else in it is a fault of this package.
A free call is read leniently, by these rules:

- blanks around the lines are passed over; one line break behind the heading of an argument and one before its end
  belong to the form, not to the value;
- a value ends at ``</parameter>``, or where the next argument or the end of the function stands;
- of an argument that is given twice, the first value counts, as it may be published already;
- what does not begin with the heading of a declared function is no call, but text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from infernix_plugin.framing.tools.contract import ToolContract
from infernix_plugin.framing.tools.encoding import UNTYPED, Encoding, Written, declared_encodings
from infernix_plugin.framing.tools.markup import (
    FUNCTION_END,
    FUNCTION_OPEN,
    LINE_END,
    NAME_END,
    PARAMETER_OPEN,
    VALUE_END,
)


class CallEncodings(Protocol):
    """What the reader has to know of a function."""

    @property
    def encodings(self) -> Mapping[str, Encoding]:
        """How each declared argument is written."""


@dataclass(frozen=True, slots=True)
class DeclaredFunction:
    """A function whose calls nothing constrains."""

    encodings: Mapping[str, Encoding]


def declared_functions(contract: ToolContract) -> dict[str, DeclaredFunction]:
    """The functions that may be called, by name, for the reading of free calls."""
    return {tool.name: DeclaredFunction(declared_encodings(tool.parameters)) for _, tool in contract.offered}


class NotACall(Exception):  # an answer, not a fault
    """The text is no call of a declared function; ``text`` is all of it so far."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class UnreadableCall(RuntimeError):
    """An enforced call that does not have the form which was enforced: the grammar and the reader disagree."""


class _Part(Enum):
    HEADING = auto()
    ARGUMENT = auto()
    VALUE = auto()
    END = auto()


class CallReader:
    """One call from behind its opening token. Feed it text; it yields fragments of JSON."""

    def __init__(self, functions: Mapping[str, CallEncodings], *, enforced: bool) -> None:
        """Read a call of one of the functions, which are known by their names."""
        self.name: str | None = None
        self._functions = functions
        self._enforced = enforced
        self._part = _Part.HEADING
        self._text = ""
        self._seen: set[str] = set()
        self._encoding = UNTYPED
        self._value: list[str] = []
        self._silent = False
        self._at_value_start = False

    @property
    def ended(self) -> bool:
        """Whether the end of the function was read."""
        return self._part is _Part.END

    @property
    def rest(self) -> str:
        """Text that was fed, but stands behind the end."""
        return self._text if self.ended else ""

    def feed(self, text: str) -> str:
        """Read more text and return the JSON that it adds to the arguments.

        Raises:
            NotACall: a free text begins with no declared function.
            UnreadableCall: an enforced text has another form.
        """
        self._text += text
        return "".join(self._steps())

    def close(self) -> str:
        """Return the rest of the arguments of a free call that stopped before its end.

        Raises:
            NotACall: not even its heading is there.
            UnreadableCall: the call is enforced.
        """
        if self._enforced:
            raise UnreadableCall("an enforced call stopped before its end")
        if self._part is _Part.HEADING:
            raise NotACall(self._text)
        rest = "".join(self._end_value(self._text.removesuffix("\n"))) if self._part is _Part.VALUE else ""
        return rest + self._end()

    def _steps(self) -> Iterator[str]:
        while True:
            match self._part:
                case _Part.HEADING:
                    going_on = self._read_heading()
                case _Part.ARGUMENT:
                    argument = self._read_argument()
                    going_on = argument is not None
                    yield argument or ""
                case _Part.VALUE:
                    fragments, going_on = self._read_value()
                    yield from fragments
                case _Part.END:
                    return
            if not going_on:
                return

    def _read_heading(self) -> bool:
        text = self._text if self._enforced else self._text.lstrip()
        opening = FUNCTION_OPEN if self._enforced else FUNCTION_OPEN.lstrip()
        if not text.startswith(opening[: len(text)]):
            self._fail()
        end = text.find(NAME_END[0], len(opening))
        if end < 0 or (self._enforced and len(text) < end + len(NAME_END)):
            if "\n" in text[len(opening) :] and end < 0:
                self._fail()
            return False
        name = text[len(opening) : end]
        if name not in self._functions or (self._enforced and not text.startswith(NAME_END, end)):
            self._fail()
        self.name = name
        self._text = text[end + len(NAME_END if self._enforced else NAME_END[0]) :]
        self._part = _Part.ARGUMENT
        return True

    def _read_argument(self) -> str | None:
        """Read the heading of an argument, or the end of the function. ``None`` if there is too little text."""
        text = self._text if self._enforced else self._text.lstrip()
        ending = FUNCTION_END if self._enforced else FUNCTION_END.rstrip()
        if text.startswith(ending):
            self._text = text[len(ending) :]
            return self._end()
        if text.startswith(PARAMETER_OPEN):
            end = text.find(NAME_END if self._enforced else NAME_END[0], len(PARAMETER_OPEN))
            if end < 0:
                return None
            name = text[len(PARAMETER_OPEN) : end]
            self._text = text[end + len(NAME_END if self._enforced else NAME_END[0]) :]
            return self._begin_value(name)
        if text and not any(line.startswith(text[: len(line)]) for line in (ending, PARAMETER_OPEN)):
            if self._enforced:
                self._fail()
            self._text = text[1:]  # a free call may hold anything between its arguments
            return ""
        return None

    def _begin_value(self, name: str) -> str:
        self._part = _Part.VALUE
        self._at_value_start = not self._enforced
        self._value = []
        self._silent = name in self._seen
        if self._silent:
            if self._enforced:
                self._fail()
            return ""
        assert self.name is not None
        self._encoding = self._functions[self.name].encodings.get(name, UNTYPED)
        opening = ", " if self._seen else "{"
        self._seen.add(name)
        quote = '"' if self._encoding.written is Written.TEXT else ""
        return f"{opening}{_quoted(name)}: {quote}"

    def _read_value(self) -> tuple[list[str], bool]:
        if self._at_value_start:
            if not self._text:
                return [], False
            self._text = self._text.removeprefix("\n")
            self._at_value_start = False
        end = self._end_of_value()
        if end is None:
            kept = _longest_beginning(self._text, _ENDS if self._enforced else _FREE_ENDS)
            cut = len(self._text) - kept
            text, self._text = self._text[:cut], self._text[cut:]
            return [self._more_of_value(text)], False
        value, self._text = self._text[: end[0]], self._text[end[1] :]
        return self._end_value(value), True

    def _end_of_value(self) -> tuple[int, int] | None:
        """Where the value ends and where its end ends."""
        if self._enforced:
            end = self._text.find(VALUE_END)
            if end < 0 or len(self._text) < end + len(VALUE_END + LINE_END):
                return None
            if not self._text.startswith(LINE_END, end + len(VALUE_END)):
                self._fail()
            return end, end + len(VALUE_END + LINE_END)
        found = [(self._text.find(mark), mark) for mark in _FREE_MARKS]
        end, mark = min(((at, mark) for at, mark in found if at >= 0), default=(-1, ""))
        if end < 0:
            return None
        behind = end + len(mark) if mark == VALUE_END.lstrip() else end
        return (end - 1 if end and self._text[end - 1] == "\n" else end), behind

    def _more_of_value(self, text: str) -> str:
        if self._silent or not text:
            return ""
        match self._encoding.written:
            case Written.TEXT:
                return _quoted(text)[1:-1]
            case Written.JSON:
                return text
        self._value.append(text)
        return ""

    def _end_value(self, rest: str) -> list[str]:
        more = self._more_of_value(rest)
        self._part = _Part.ARGUMENT
        if self._silent:
            return []
        if self._encoding.written is Written.DECIDED_AT_END:
            return [self._encoding.json_of("".join(self._value))]
        return [more, '"'] if self._encoding.written is Written.TEXT else [more]

    def _end(self) -> str:
        self._part = _Part.END
        return "}" if self._seen else "{}"

    def _fail(self) -> None:
        if self._enforced:
            raise UnreadableCall(f"an enforced call has another form in its {self._part.name.lower()}")
        raise NotACall(self._text)


_FREE_MARKS = (VALUE_END.lstrip(), PARAMETER_OPEN, FUNCTION_END.rstrip())
_ENDS = (VALUE_END + LINE_END,)
_FREE_ENDS = tuple(before + mark for before in ("", "\n") for mark in _FREE_MARKS)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _longest_beginning(text: str, ends: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may be the beginning of one of ``ends``."""
    for length in range(min(len(text), max(map(len, ends)) - 1), 0, -1):
        tail = text[-length:]
        if any(end.startswith(tail) for end in ends):
            return length
    return 0
