"""The process that workers are forked from: ``python -m infernix_plugin.isolation.nursery CONTROL LIFELINE``.

It gets the vocabulary and the options over the socket CONTROL, indexes the vocabulary, and then forks a worker for each
socket that it is sent. It has one thread and does nothing else, so that to fork is safe and takes milliseconds. It ends
when the other end of CONTROL is closed, a worker when that of the pipe LIFELINE is: both close with the server.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
from dataclasses import asdict, dataclass
from time import thread_time

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.isolation import frames
from infernix_plugin.isolation.lean import import_xgrammar
from infernix_plugin.matching import wire
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.select import Engines, Lark
from infernix_plugin.matching.plan import LocalPlanner, Plan
from infernix_plugin.matching.warming import SAMPLES

OOM_SCORE = "500"
"""Where memory is short, a compile ends before the server that asked for it."""
NICENESS = 5
"""What a compile gives way by from the start; see ``pool.LONG_NICENESS``."""
TRIED_CHARACTERS = 1 << 14
"""From this length on, a worker also loads the text that it made: in a short one llguidance finds no time to lose."""
KEPT = 4
"""What a worker keeps from earlier jobs may be this part of the memory that one may use; then it is replaced."""
_TOO_MUCH = [b"memory"]
"""The answer to a job that takes more memory than one may use. The worker is replaced then, too."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a nursery has to know beside the vocabulary.

    Attributes:
        options: of the grammars.
        cache_bytes: for what engines keep between grammars.
        seconds: processor time of one compile.
        memory_bytes: that a worker may use beyond what the nursery holds.
        niceness: steps by which all of them give way to the server.
    """

    options: GrammarOptions
    cache_bytes: int
    seconds: float
    memory_bytes: int
    niceness: int = NICENESS

    def packed(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Setup:
        """Inverse of :meth:`packed`."""
        values = json.loads(data)
        return cls(**{**values, "options": GrammarOptions(**values["options"])})


def main(control: int, lifeline: int) -> None:
    """Serve until the socket ``control`` is closed at its other end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal's or a service manager's, which is for the server
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
    with socket.socket(fileno=control) as orders, contextlib.suppress(OSError):
        packed, *vocabulary = frames.receive(orders)
        setup = Setup.unpacked(packed)
        os.nice(setup.niceness)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write(OOM_SCORE)
        planning = _Planning(setup, wire.unpacked_domain(vocabulary))
        gc.collect()
        gc.freeze()  # so that workers share the pages
        while places := socket.recv_fds(orders, 1, 1)[1]:
            if os.fork() == 0:
                orders.close()
                planning.work(places[0], lifeline)
            os.close(places[0])


class _Planning:
    """What workers do."""

    def __init__(self, setup: Setup, domain: TokenDomain) -> None:
        import_xgrammar()
        self._setup = setup
        self._engines = Engines(domain, setup.cache_bytes, setup.options)
        self._planner = LocalPlanner(domain, self._engines, setup.options, setup.seconds)
        self._planner.clock = thread_time  # it gives way to others, which shall refuse nothing
        for job in SAMPLES:
            with contextlib.suppress(ConstraintError):
                self._engines.made(self._planner.plan(job).source)

    def work(self, place: int, lifeline: int) -> None:
        """Be a worker, which answers jobs over the socket ``place`` until that is closed. Does not return."""
        held = _data_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (held + self._setup.memory_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        with contextlib.suppress(OSError), socket.socket(fileno=place) as orders:
            frames.send(orders, [str(os.getpid()).encode()])
            while True:
                answer = self._answer(frames.receive(orders))
                has_grown = answer == _TOO_MUCH or _data_bytes() - held > self._setup.memory_bytes // KEPT
                frames.send(orders, [frames.GROWN if has_grown else frames.READY, *answer])
        os._exit(0)

    def _answer(self, request: list[bytes]) -> wire.Frames:
        try:
            return [b"plan", *wire.packed_plan(self._planned(request))]
        except MemoryError:
            return _TOO_MUCH
        except Exception as error:
            if "bad_alloc" in str(error):
                return _TOO_MUCH
            return [b"error", *wire.packed_error(error)]

    def _planned(self, request: list[bytes]) -> Plan:
        job, spare = wire.unpacked_job(request)
        plan = self._planner.plan(job, spare=spare)
        if not isinstance(plan.source, Lark) or len(plan.source.text) < TRIED_CHARACTERS:
            return plan
        try:
            self._engines.made(plan.source)
        except ConstraintTooLarge:
            if not plan.source.has_spare:
                raise
            return self._planner.plan(job, spare=True)
        return plan


def _data_bytes() -> int:
    """What counts against ``RLIMIT_DATA`` now."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
