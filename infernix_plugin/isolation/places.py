"""Who compiles when, and who waits.

Every job begins in a *short* place and has it for :data:`SHORT_SECONDS`, which is enough for nearly every constraint. A
longer one goes on in a *long* place. If none is free it is ended, and begins again when one is: so that nobody with an
ordinary constraint waits for those that take seconds.
"""

from __future__ import annotations

import threading

from infernix_plugin.grammar import interest

SHORT_SECONDS = 0.2
MAX_WAITING = 48
"""Jobs that may wait for a long place. Each holds a thread of the server; the others are for ordinary constraints."""


class Busy(Exception):
    """Too many jobs wait for a long place."""


class Places:
    """The places of one vocabulary. Thread-safe."""

    def __init__(self, count: int) -> None:
        """So many short ones, and as many long ones."""
        self.short = threading.BoundedSemaphore(count)
        self.long = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self.waiting = 0
        """Jobs that wait for a long place."""

    def wait_for_long(self) -> None:
        """Take a long place as soon as there is one.

        Raises:
            Busy: too many wait already.
            CompileAbandoned: nobody waits for the result any more.
        """
        with self._lock:
            if self.waiting >= MAX_WAITING:
                raise Busy
            self.waiting += 1
        try:
            interest.acquire(self.long)
        finally:
            with self._lock:
                self.waiting -= 1
