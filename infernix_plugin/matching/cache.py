"""A byte-bounded cache of expensive builds: one build per key at a time, few builds at once."""

from __future__ import annotations

import copy
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Generic, Protocol, TypeVar

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar import interest
from infernix_plugin.grammar.budget import CompileCrash, CompileTimeout

MAX_REFUSALS = 1024
"""Most refused keys that are remembered, each by a digest."""


class Outcome(StrEnum):
    """How a value was obtained."""

    HIT = "hit"
    BUILT = "built"
    WAITED = "waited"
    """Another thread was building it; this one waited for the result."""


class Sized(Protocol):
    """A value that knows its size."""

    @property
    def memory_bytes(self) -> int:
        """Approximate size in bytes."""


Value = TypeVar("Value", bound=Sized)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Totals since the start, and the present content."""

    hits: int = 0
    built: int = 0
    waited: int = 0
    failed: int = 0
    evicted: int = 0
    entries: int = 0
    bytes: int = 0
    building: int = 0
    """Builds that run or wait for their turn."""


class _Build(Generic[Value]):
    """One that runs or waits for its turn, and who waits for it."""

    def __init__(self) -> None:
        self.done: Future[Value] = Future()
        self._wanted = [interest.current()]

    def join(self) -> None:
        """Wait for it too."""
        self._wanted.append(interest.current())

    def is_wanted(self) -> bool:
        """Whether one of those still waits."""
        return any(condition() for condition in self._wanted)

    def result(self) -> Value:
        """What it made, once it has.

        Raises:
            CompileAbandoned: nobody waits for this thread any more, or nobody waited for the build.
            Exception: whatever the build raised.
        """
        while not wait([self.done], timeout=interest.LOOK_SECONDS).done:
            interest.check()
        return self.done.result()


class BuildCache(Generic[Value]):
    """Least recently used values up to a byte budget. Thread-safe.

    The lock is never held while a value is built. Values in use outlive their eviction. A failed build is raised in
    the thread that ran it and in those that waited for it. A refusal that depends on nothing but the key is remembered,
    so that a refused constraint sent again costs nothing; a time-out, a crash or any other error is forgotten.

    A build is wanted as long as somebody waits for it who is wanted; see :mod:`~infernix_plugin.grammar.interest`.
    """

    def __init__(self, budget_bytes: int, max_builds: int) -> None:
        """Keep at most ``budget_bytes`` of values and run at most ``max_builds`` builds at once."""
        self._budget = budget_bytes
        self._slots = threading.BoundedSemaphore(max_builds)
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._building: dict[Hashable, _Build[Value]] = {}
        self._refusals: OrderedDict[bytes, ConstraintError] = OrderedDict()
        self._held = 0
        self._counts: Counter[str] = Counter()

    def allow(self, max_builds: int) -> None:
        """Run at most ``max_builds`` builds at once from now on. To be called before the first."""
        self._slots = threading.BoundedSemaphore(max_builds)

    def get(self, key: Hashable, build: Callable[[], Value]) -> tuple[Value, Outcome]:
        """The value of ``key``, built on this thread if nobody has or is building it.

        Raises:
            Exception: whatever ``build`` raised, here, before, or in the thread that was waited for. Each call gets its
                own :class:`ConstraintError`, as a traceback belongs to one thread.
            CompileAbandoned: nobody waits for this thread any more.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                self._counts["hits"] += 1
                return self._values[key], Outcome.HIT
        digest = _digest(key)
        while True:
            with self._lock:
                refusal = self._refusals.get(digest)
                if refusal is not None:
                    self._refusals.move_to_end(digest)
                    raise copy.copy(refusal)
                if key in self._values:  # built meanwhile
                    self._counts["hits"] += 1
                    return self._values[key], Outcome.HIT
                building = self._building.get(key)
                if building is None:
                    own: _Build[Value] = _Build()
                    self._building[key] = own
                    break
                building.join()
                self._counts["waited"] += 1
            try:
                return building.result(), Outcome.WAITED
            except ConstraintError as error:
                raise copy.copy(error) from None
            except interest.CompileAbandoned:  # those who wanted it had left before this thread joined them
                interest.check()
        return self._built(key, digest, own, build), Outcome.BUILT

    def _built(self, key: Hashable, digest: bytes, own: _Build[Value], build: Callable[[], Value]) -> Value:
        try:
            with interest.wanted_while(own.is_wanted), interest.place(self._slots):
                value = build()
        except BaseException as error:
            with self._lock:
                del self._building[key]
                self._counts["failed"] += 1
                if isinstance(error, ConstraintError) and not isinstance(error, CompileTimeout | CompileCrash):
                    self._refusals[digest] = copy.copy(error)
                    if len(self._refusals) > MAX_REFUSALS:
                        self._refusals.popitem(last=False)
            own.done.set_exception(error)
            raise
        with self._lock:
            del self._building[key]
            self._counts["built"] += 1
            self._keep(key, value)
        own.done.set_result(value)
        return value

    def holds(self, key: Hashable) -> bool:
        """Whether :meth:`get` would return at once, with a value."""
        with self._lock:
            return key in self._values

    def stats(self) -> CacheStats:
        """A consistent snapshot."""
        with self._lock:
            return CacheStats(**self._counts, entries=len(self._values), bytes=self._held, building=len(self._building))

    def _keep(self, key: Hashable, value: Value) -> None:
        self._values[key] = value
        self._held += value.memory_bytes
        while self._held > self._budget:
            _, old = self._values.popitem(last=False)
            self._held -= old.memory_bytes
            self._counts["evicted"] += 1


def _digest(key: Hashable) -> bytes:
    """Stands for a key, which may be megabytes long, without keeping it."""
    return sha256(repr(key).encode("utf-8", "backslashreplace")).digest()
