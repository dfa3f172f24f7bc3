"""A child process in a group of its own, so that everything it starts can be stopped with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

STOP_SECONDS = 10
LOG_LINES = 10

_EXCEPTION = re.compile(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception|Exit)\b: .*)$")


class ProcessGroup:
    """A command whose output goes to a log file. A Ctrl-C in the terminal reaches only us, and we stop the group."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Id of the process, which is also the id of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, or ``None`` while the process runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        """Wait for the end and return the exit code; ``subprocess.TimeoutExpired`` after ``seconds``."""
        return self._process.wait(seconds)

    def stop(self) -> None:
        """End the whole group: politely, then not. Signals to us wait until this is done."""
        with _deaf():
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            self._signal(signal.SIGKILL)  # whatever its leader has left behind, or the leader itself
            self._process.wait()

    def log_text(self) -> str:
        """Return everything that the group has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def log_summary(self) -> str:
        """Return the file's name and what it says at the end: its exceptions if there are any, else its last lines."""
        lines = self.log_text().splitlines()
        exceptions = dict.fromkeys(match[1] for line in lines if (match := _EXCEPTION.search(line)))
        return "\n  ".join([f"From {self.log}:", *list(exceptions or lines)[-LOG_LINES:]])

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``SystemExit`` in the body, so that its ``finally`` blocks run."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    with _handlers({signal.SIGTERM: leave, signal.SIGHUP: leave}):
        yield


def _deaf() -> contextlib.AbstractContextManager[None]:
    ignored = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return _handlers(dict.fromkeys(ignored, signal.SIG_IGN))


@contextlib.contextmanager
def _handlers(handlers: Mapping[signal.Signals, signal._HANDLER]) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:  # not the main thread, which is the only one that signals reach
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
