"""What becomes of each hostile constraint, how long it takes and how much memory.

    python -m benchmarks.hostile > table.md

Every input of ``tests/hostile/corpus.py`` is compiled as in a server, by a worker whose memory is bounded, over a
vocabulary of 30,000 tokens, and followed for twelve tokens. Seconds are processor time of the worker, and of this side;
peak memory is what was resident beyond what the process held before, the larger of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Annotated

import typer

from tests.hostile.corpus import FAMILIES

COMPILE_SECONDS = 10.0
MEMORY = 1 << 30


def main(seconds: Annotated[float, typer.Option(help="max_compile_seconds.")] = COMPILE_SECONDS) -> None:
    """Print the table."""
    print("| input | outcome | worker's seconds | server's seconds | peak MiB |\n|:--|:--|--:|--:|--:|", flush=True)
    for family in FAMILIES:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostile.attempt", family, str(seconds), str(MEMORY), "isolated"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        for line in map(json.loads, done.stdout.splitlines()):
            used = f"{line['worker_seconds']:.2f} | {line['cpu_seconds']:.2f} | {line['peak_bytes'] / (1 << 20):.0f}"
            print(f"| {family}: {line['name']} | {line['outcome']} | {used} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
