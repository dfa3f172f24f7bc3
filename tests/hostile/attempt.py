"""Try one family of the corpus in a process of its own: ``attempt.py FAMILY SECONDS BYTES``; one JSON line for each.

The process may use ``BYTES`` of address space more than it has once an engine is loaded, so a constraint that takes
more ends it.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from pathlib import Path
from time import monotonic, process_time

import numpy as np

from infernix_plugin import ConstraintCompiler, ConstraintError, MaskState, OutputConstraint, TokenDomain
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


def main(family: str, seconds: float, memory: int) -> None:
    compiler = ConstraintCompiler(domain(), max_compile_seconds=seconds)
    for warm in ('root ::= "(" root ")" | "x"', 'root ::= "x"'):
        compiler.compile(OutputConstraint.grammar(warm))
    with open("/proc/self/statm", encoding="ascii") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    for name, make in FAMILIES[family].items():
        before = forget_peak()
        started, worked = monotonic(), process_time()
        result = outcome(compiler, make)
        took = {"seconds": monotonic() - started, "cpu_seconds": process_time() - worked, "peak_bytes": peak() - before}
        print(json.dumps({"name": name, "outcome": result, **took}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
