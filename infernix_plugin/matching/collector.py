"""The cyclic garbage collector, paused while a grammar is compiled.

A compile makes hundreds of thousands of small objects that are all alive until it ends. Every collection meanwhile
looks at them, and at the whole vocabulary, to find nothing: half of the time of a large schema. What a compile may
allocate is bounded by its own limits.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()


class _Pauses:
    running = 0
    was_enabled = False


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause automatic collections in this process; they go on when the last of several pauses ends. Thread-safe."""
    with _lock:
        if not _Pauses.running:
            _Pauses.was_enabled = gc.isenabled()
            gc.disable()
        _Pauses.running += 1
    try:
        yield
    finally:
        with _lock:
            _Pauses.running -= 1
            if not _Pauses.running and _Pauses.was_enabled:
                gc.enable()
