"""Try one family of the corpus: ``attempt.py FAMILY SECONDS BYTES [isolated]``; one JSON line for each.

The process may use ``BYTES`` of address space more than it has once an engine is loaded, so a constraint that takes
more ends it. With ``isolated`` constraints are compiled as in a server, and the bound is that of its workers. But
nothing is served here, so they give way to nobody and may wait for a core as long as it takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import sys
import threading
from functools import partial
from pathlib import Path
from time import monotonic, thread_time

import numpy as np

from infernix_plugin import ConstraintCompiler, ConstraintError, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.isolation import pool
from infernix_plugin.isolation.nursery import Setup
from infernix_plugin.isolation.planner import IsolatedPlanner
from infernix_plugin.matching.engines.select import Engines
from infernix_plugin.matching.plan import Planner
from tests.hostile.corpus import FAMILIES

STEPS = 12


def domain() -> TokenDomain:
    """All bytes and 30,000 random words, so that the work on the vocabulary counts."""
    rng = random.Random(0)
    words = {"".join(rng.choices("etaoinsrhdxyz(( 0123", k=rng.randint(2, 9))).encode() for _ in range(30_000)}
    pieces = [bytes([byte]) for byte in range(256)] + sorted(words) + [b"<end>"]
    return TokenDomain(pieces, control={"<end>": len(pieces) - 1}, stop=[len(pieces) - 1])


def outcome(compiler: ConstraintCompiler, make: object) -> str:
    try:
        compiled = compiler.compile(make())  # type: ignore[operator]
    except ConstraintError as error:
        return type(error).__name__
    session, rng = compiled.session(), random.Random(1)
    row = np.zeros(compiler.domain.mask_words, dtype=np.int32)
    for _ in range(STEPS):
        if session.fill_mask(row) is not MaskState.READY:
            return f"{compiled.engine}, then {type(session.engine_error).__name__}"
        token = rng.choice(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())
        if not session.accept(token):
            return f"contradiction at token {token}"
        if session.terminated:
            break
    return compiled.engine


def forget_peak() -> int:
    """Let the highest memory that :func:`peak` tells be the present one, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most memory, in bytes, that was resident since :func:`forget_peak`."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


class Workers:
    """What the processes below this one take: watched, as each may be ended in the middle of its work."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = self._sizes()
        self.peak = 0
        self.cpu_seconds = 0.0
        self._cpu: dict[int, float] = {}

    def __enter__(self) -> Workers:
        self._cpu_before = self._times()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.cpu_seconds = sum(self._cpu.values())

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self._look()
        self._look()

    def _look(self) -> None:
        usual = min(self._before.values(), default=0)
        for process, size in self._sizes().items():
            self.peak = max(self.peak, size - self._before.get(process, usual))
        for process, seconds in self._times().items():
            self._cpu[process] = seconds - self._cpu_before.get(process, 0.0)

    def _sizes(self) -> dict[int, int]:
        """Bytes that are resident, without what is shared with files."""
        return {process: int(fields[22]) * resource.getpagesize() for process, fields in _below(os.getpid())}

    def _times(self) -> dict[int, float]:
        tick = os.sysconf("SC_CLK_TCK")
        return {process: (int(fields[12]) + int(fields[13])) / tick for process, fields in _below(os.getpid())}


def _below(ancestor: int) -> list[tuple[int, list[str]]]:
    """The children of the children of a process, and the fields of their ``stat`` behind the process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = ["", *fields]
    children = {process for process, fields in found.items() if fields[2] == str(ancestor)}
    return [(process, fields) for process, fields in found.items() if int(fields[2]) in children]


def main(family: str, seconds: float, memory: int, *, isolated: bool) -> None:
    compiler = ConstraintCompiler(domain(), max_compile_seconds=seconds)
    if isolated:
        pool.WAITING, pool.LONG_NICENESS = 1000, 0
        setup = Setup(GrammarOptions(), 256 << 20, seconds, memory, niceness=0)
        compiler.plan_with(partial(_planner, setup, compiler.domain), 4)
    for warm in ('root ::= "(" root ")" | "x"', 'root ::= "x"'):
        compiler.compile(OutputConstraint.grammar(warm))
    with open("/proc/self/statm", encoding="ascii") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    if not isolated:
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    for name, make in FAMILIES[family].items():
        before = forget_peak()
        started, worked = monotonic(), thread_time()
        with Workers() if isolated else contextlib.nullcontext() as workers:
            result = outcome(compiler, make)
        took = {"seconds": monotonic() - started, "cpu_seconds": thread_time() - worked, "peak_bytes": peak() - before}
        if workers is not None:
            took["worker_seconds"] = workers.cpu_seconds
            took["peak_bytes"] = max(workers.peak, took["peak_bytes"])
        print(json.dumps({"name": name, "outcome": result, **took}), flush=True)


def _planner(setup: Setup, domain: TokenDomain, engines: Engines, local: Planner) -> IsolatedPlanner:
    return IsolatedPlanner(setup, domain, engines, local, 2)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), isolated="isolated" in sys.argv[4:])
