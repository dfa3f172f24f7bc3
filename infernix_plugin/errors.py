"""Every way a constraint can be wrong, in one hierarchy.

An error says *what* is wrong (``message``), *where* (``location``) and, when we know it, *what to do* (``hint``).
Messages never contain an absolute path or more than a bounded excerpt of the user's input.
"""

from __future__ import annotations

import traceback
from pathlib import Path

EXCERPT_CHARACTERS = 60
SHOWN_CHARACTERS = 400
MESSAGE_CHARACTERS = 1000


def excerpt(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """Return ``text`` quoted and cut to at most ``limit`` characters, safe to put into a message."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(shown)


def bounded(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Return ``text`` with at most ``limit`` characters: the middle of longer ones is left out."""
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def printable(text: str) -> str:
    """Return a client's text, such as the name that it gave a request, for the log: on one line, and not long."""
    return repr(bounded(text))[1:-1]


def for_log(error: BaseException) -> str:
    """Return what the log may say of an error: its type and, if it is not one of ours, where it was raised.

    A message may quote the constraint, which belongs to the client and is in no log.
    """
    if isinstance(error, ConstraintDeadEnd | NonFiniteLogits) or type(error) is InfernixError:
        return f"{type(error).__name__}: {error}"
    name = type(error).__name__
    if isinstance(error, InfernixError):
        return name
    frames = traceback.extract_tb(error.__traceback__)
    calls = (f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{name} in {' < '.join(calls)}"


class InfernixError(Exception):
    """Base of every error this package raises on purpose."""


class UnsupportedVllmError(InfernixError):
    """The installed vLLM is outside the supported range, or a patched attribute has moved."""


class EndsCommandLine(SystemExit):
    """Mixed into an error, ends a command line with one line on standard error; elsewhere the error is as ever."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.code = line


class SettingsError(InfernixError):
    """``additional_config["infernix"]`` or an ``INFERNIX_*`` variable is not valid."""


class CheckpointError(InfernixError):
    """A checkpoint cannot be read, or does not hold the tensors that its model needs."""


class ConstraintError(InfernixError):
    """A constraint that cannot be enforced.

    Attributes:
        message: what is wrong, one sentence that stands alone.
        location: where, in the notation of the source: a JSON Pointer fragment (``#/properties/a``) for schemas,
            ``line:column`` (both from 1) for grammars, ``offset N`` (characters, from 0) for regexes and prefixes,
            ``[i]`` for choices. ``None`` when the whole constraint is meant. Whole here, and shortened in the text.
        hint: how to rewrite the constraint, or ``None``.
    """

    def __init__(self, message: str, *, location: str | None = None, hint: str | None = None) -> None:
        self.message = bounded(_encodable(message), MESSAGE_CHARACTERS)
        self.location = None if location is None else _encodable(location)
        self.hint = None if hint is None else bounded(_encodable(hint), MESSAGE_CHARACTERS)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.told(self.location)

    def told(self, location: str | None) -> str:
        """Return message, place and hint as one text; ``location`` is how its reader writes the place."""
        place = f" (at {bounded(location)})" if location is not None else ""
        stop = "" if self.message.endswith((".", "!", "?")) else "."
        return f"{self.message}{place}" + (f"{stop} Hint: {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.location, self.hint))


def _encodable(text: str) -> str:
    """Lone surrogates, which a user's JSON can hold, would break every writer of logs and responses."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _rebuild(kind: type[ConstraintError], message: str, location: str | None, hint: str | None) -> ConstraintError:
    return kind(message, location=location, hint=hint)


class InvalidGrammar(ConstraintError):
    """The GBNF (or Lark) text has a syntax error, or refers to a rule that is not defined."""


class InvalidSchema(ConstraintError):
    """The JSON Schema document itself is malformed."""


class UnsupportedSchema(ConstraintError):
    """The schema is well-formed but holds an assertion that we cannot enforce exactly."""


class InvalidChoice(ConstraintError):
    """The list of choices is empty or holds something that is not a string of Unicode scalar values."""


class InvalidRegex(ConstraintError):
    """The regular expression is malformed or uses a feature outside the supported dialect."""


class ConflictingConstraints(ConstraintError):
    """Two constraints, or a constraint and another option, cannot hold together."""


class ConstraintTooLarge(ConstraintError):
    """A size, depth, count or time limit was passed; the message names the limit and the value."""


class InvalidContinuation(ConstraintError):
    """The already written prefix is not a prefix of the language."""


class UnsatisfiableConstraint(ConstraintError):
    """The constraint describes an empty language."""


class ConstraintDeadEnd(ConstraintError):
    """At run time: the committed output can be continued by no token of the vocabulary."""


class NonFiniteLogits(ConstraintError):
    """At run time: the model produced NaN or infinite logits in a constrained row."""


def kind_of_constraint_error(name: str) -> type[ConstraintError] | None:
    """Return the class of that name, wherever in the package it is defined: an error that came from another process."""
    pending: list[type[ConstraintError]] = [ConstraintError]
    for kind in pending:
        if kind.__name__ == name:
            return kind
        pending += kind.__subclasses__()
    return None
