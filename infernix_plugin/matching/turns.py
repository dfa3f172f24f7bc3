"""Short turns for the threads of this process while a grammar is compiled.

A compile is Python for seconds, on a thread of a process that has others to serve: the event loop of an API server, the
steps of an engine core. Whoever wakes up waits for the interpreter until the compile's turn is over, which is 5 ms by
default, each time that it gave the interpreter away, and longer where two compiles pass it to each other. A thread that
slept four times for moments was late by 0.3 ms alone, by 80 to 180 ms beside two compiles with turns of 5 ms, and by
about 2 ms with these.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 0.0002

_lock = threading.Lock()


class _Turns:
    running = 0
    before = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns of :data:`SECONDS` until the last of several such blocks ends. Thread-safe."""
    with _lock:
        if not _Turns.running:
            _Turns.before = sys.getswitchinterval()
            sys.setswitchinterval(min(SECONDS, _Turns.before))
        _Turns.running += 1
    try:
        yield
    finally:
        with _lock:
            _Turns.running -= 1
            if not _Turns.running:
                sys.setswitchinterval(_Turns.before)
