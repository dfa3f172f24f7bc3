"""Workers, and who gets one when: see :mod:`.places`. One in a long place has a lower priority."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import infernix_plugin
from infernix_plugin.grammar import interest
from infernix_plugin.grammar.interest import LOOK_SECONDS
from infernix_plugin.isolation import frames, places
from infernix_plugin.isolation.places import Places

LONG_NICENESS = 10
"""By so many steps more than its server, a worker in a long place gives way: where there is no core to spare, it gets a
tenth of one. At the lowest priority it would get nothing there until it is out of time."""
GRACE_SECONDS = 1.0
"""A worker looks at its own clock; so much processor time later, it is ended from outside."""
WAITING = 6
"""A worker may be ``seconds`` at work, and so many times that in all: where all cores are busy, it waits for one."""
SHORT_WAITING = 3
"""So many times :data:`SHORT_SECONDS` a job may have a short place."""
MAX_ENDED = 8
"""So many workers in a row may have ended before they had anything to do."""
HELLO_SECONDS = 120.0
"""In this time a nursery must have read the vocabulary."""


class OutOfTime(Exception):
    """A job took longer than it may."""


class Crash(Exception):
    """A worker ended in the middle of a job."""


class NoWorkers(Exception):
    """There is no process to work in."""


class Pool:
    """The workers of one vocabulary. Thread-safe; started on first use."""

    def __init__(self, setup: Sequence[bytes], *, count: int, seconds: float) -> None:
        """Describe them.

        Args:
            setup: the first message to the nursery.
            count: of short places, and of long ones.
            seconds: processor time of a job; :data:`WAITING` times as much wall time.
        """
        self._setup = setup
        self._seconds = seconds
        self.places = Places(count)
        self._lock = threading.Lock()
        self._nursery: _Nursery | None = None
        self._idle: list[_Worker] = []

    def start(self) -> None:
        """Start the nursery, unless there is one.

        Raises:
            NoWorkers: it cannot be started.
        """
        with self._lock:
            self._started()

    def run(self, request: Sequence[bytes]) -> list[bytes]:
        """Let a worker answer.

        Raises:
            OutOfTime: it took longer than it may, and a moment of grace.
            Crash: the worker ended.
            NoWorkers: there is none.
            Busy: it takes long, and too many of those wait already.
            CompileAbandoned: nobody waits for the answer any more.
        """
        interest.check()
        with interest.place(self.places.short):
            worker = self._worker()
            began = worker.begin(request)
            if worker.answers_soon():
                state, *answer = worker.answer()
                if state == frames.READY:
                    self._put_back(worker)
                else:
                    worker.end()
                return answer
            has_place = self.places.long.acquire(blocking=False)
            if not has_place:
                worker.end()
        if not has_place:
            self.places.wait_for_long()
        try:
            if not has_place:
                worker = self._worker()
                began = worker.begin(request)
            worker.give_way()
            while not worker.answers(LOOK_SECONDS):
                interest.check()
                if (
                    worker.processor_seconds() > self._seconds + GRACE_SECONDS
                    or monotonic() - began > self._seconds * WAITING + GRACE_SECONDS
                ):
                    raise OutOfTime
            return worker.answer()[1:]
        finally:
            worker.end()  # nobody may raise its priority again
            self.places.long.release()

    def close(self) -> None:
        """End all processes. One that is asked for later is started again."""
        if self._nursery is not None:
            self._give_up(self._nursery)

    def _worker(self) -> _Worker:
        for _ in range(MAX_ENDED):
            with self._lock:
                nursery = self._started()
                try:
                    worker = self._idle.pop() if self._idle else nursery.worker()
                except OSError as error:
                    raise NoWorkers(f"a process cannot be reached: {error}") from None
                if not self._idle:
                    with contextlib.suppress(OSError):
                        self._idle.append(nursery.worker())  # forked by the time that it is needed
            try:
                worker.meet()
            except ProcessLookupError:
                pass
            except OSError:
                worker.end()
                self._give_up(nursery)
                raise NoWorkers("the process that workers are forked from has ended") from None
            else:
                if not worker.answers(0):
                    return worker
            worker.end()  # it has ended while it was idle
        raise NoWorkers("processes end before they have anything to do")

    def _give_up(self, nursery: _Nursery) -> None:
        with self._lock:
            if self._nursery is nursery:
                self._nursery = None
                idle, self._idle = self._idle, []
                for worker in idle:
                    worker.end()
                nursery.close()

    def _put_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def _started(self) -> _Nursery:
        if self._nursery is None:
            try:
                self._nursery = _Nursery(self._setup)
            except OSError as error:
                raise NoWorkers(f"a process cannot be started: {error}") from None
        return self._nursery


class _Nursery:
    """The process that workers are forked from."""

    def __init__(self, setup: Sequence[bytes]) -> None:
        self._orders, theirs = socket.socketpair()
        reading, self._lifeline = os.pipe()
        with theirs:
            place = str(Path(infernix_plugin.__file__).parents[1])
            path = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
            module = "infernix_plugin.isolation.nursery"
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(reading)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), reading),
                    env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                )
            finally:
                os.close(reading)
        # However it ends, it leaves no zombie.
        threading.Thread(target=self._process.wait, name="infernix-nursery", daemon=True).start()
        frames.send(self._orders, setup)

    def worker(self) -> _Worker:
        """Order a worker; it exists some milliseconds later."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # then nobody will answer
            socket.send_fds(self._orders, [b"w"], [theirs.fileno()])
        return _Worker(ours)

    def close(self) -> None:
        """End it, and its workers with it."""
        self._orders.close()
        os.close(self._lifeline)
        self._process.kill()
        self._process.wait()


class _Worker:
    """One process that answers one request after the other."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._process: int | None = None

    def meet(self) -> None:
        """Wait until it exists.

        Raises:
            OSError: it does not.
        """
        if self._process is None:
            if not frames.arrives(self._orders, HELLO_SECONDS):
                raise ConnectionError("nobody answers")
            (pid,) = frames.receive(self._orders)
            self._process = os.pidfd_open(int(pid))
            self._pid = int(pid)

    def begin(self, request: Sequence[bytes]) -> float:
        """Hand it a request; return the time.

        Raises:
            Crash: it has ended.
        """
        began = monotonic()
        self._taken_before = self._taken()
        try:
            frames.send(self._orders, request)
        except OSError:
            self.end()
            raise Crash from None
        return began

    def answers_soon(self) -> bool:
        """Whether it has answered or ended before it took :data:`SHORT_SECONDS` of processor time."""
        until = monotonic() + places.SHORT_SECONDS * SHORT_WAITING
        wait = places.SHORT_SECONDS
        while not self.answers(wait):
            if self.processor_seconds() >= places.SHORT_SECONDS or monotonic() >= until:
                return False
            wait = places.SHORT_SECONDS / 4
        return True

    def answers(self, seconds: float) -> bool:
        """Whether it has answered or ended within so many seconds."""
        return frames.arrives(self._orders, seconds)

    def answer(self) -> list[bytes]:
        """Its answer, behind the state in which that leaves it: ``frames.READY`` or ``frames.GROWN``.

        Raises:
            Crash: it has ended.
        """
        try:
            return frames.receive(self._orders)
        except OSError:
            self.end()
            raise Crash from None

    def processor_seconds(self) -> float:
        """What it has taken for the request that it works at."""
        return self._taken() - self._taken_before

    def _taken(self) -> float:
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended, which its socket says
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def give_way(self) -> None:
        """Lower the priority of its work, for good."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._pid, os.nice(0) + LONG_NICENESS)

    def end(self) -> None:
        """End it, whatever it is doing."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
            self._process = None
        self._orders.close()
