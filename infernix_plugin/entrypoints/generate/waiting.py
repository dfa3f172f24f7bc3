"""Say that something is under way: on a terminal in one line that changes, elsewhere in a line now and then."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

EVERY = 20
"""Calls between two lines of a stream that is no terminal; calls come twice a second."""


class Waiting:
    """Report to a stream while the body runs."""

    def __init__(self, stream: TextIO, what: str) -> None:
        """Report ``what`` to ``stream``."""
        self._stream = stream
        self._what = what
        self._rewrites = stream.isatty()
        self._calls = 0

    def __enter__(self) -> Waiting:
        """Say what is under way."""
        print(self._what, end="" if self._rewrites else "\n", file=self._stream, flush=True)
        return self

    def passed(self, waited: str) -> None:
        """Say how long it takes so far."""
        self._calls += 1
        if self._rewrites:
            print(f"\r{self._what} ({waited})", end="", file=self._stream, flush=True)
        elif self._calls % EVERY == 0:
            print(f"{self._what} ({waited})", file=self._stream, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the line that changes."""
        if self._rewrites:
            print(file=self._stream, flush=True)
