"""Whether anybody still waits for a compile, which may take seconds and for whose result clients may not stay.

Like the budget of a compile, this travels in a context variable, and whatever looks at the clock or waits for its turn
looks here too. When the interpreter only waits for its threads to end, nobody waits for a compile either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread as _executors  # noqa: F401  # it registers first, and is called last
from contextlib import contextmanager
from contextvars import ContextVar

from infernix_plugin.errors import InfernixError

LOOK_SECONDS = 0.25
"""So often whoever waits for something else looks whether somebody waits for him."""


class CompileAbandoned(InfernixError):
    """Nobody waits for the compile any more."""


_ending = threading.Event()
# Set before the threads of executors are waited for, which is before anything that atexit knows.
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_ending.set)


def _always() -> bool:
    return True


_wanted: ContextVar[Callable[[], bool]] = ContextVar("compile_is_wanted", default=_always)


@contextmanager
def wanted_while(condition: Callable[[], bool]) -> Iterator[None]:
    """Let what this thread compiles inside be wanted until ``condition`` is false, as which it then stays."""
    token = _wanted.set(condition)
    try:
        yield
    finally:
        _wanted.reset(token)


def current() -> Callable[[], bool]:
    """The condition of the surrounding :func:`wanted_while`, for another thread that works for this one."""
    return _wanted.get()


def check() -> None:
    """Stop here if nobody wants the result.

    Raises:
        CompileAbandoned: nobody does.
    """
    if _ending.is_set() or not _wanted.get()():
        raise CompileAbandoned("The constraint is not compiled any more: its client has left, or the server ends.")


def acquire(places: threading.Semaphore) -> None:
    """Take one of ``places`` as soon as there is one.

    Raises:
        CompileAbandoned: nobody wants the result by then.
    """
    while not places.acquire(timeout=LOOK_SECONDS):
        check()


@contextmanager
def place(places: threading.Semaphore) -> Iterator[None]:
    """Hold one of ``places``; see :func:`acquire`."""
    acquire(places)
    try:
        yield
    finally:
        places.release()
