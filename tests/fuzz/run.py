"""``python -m tests.fuzz.run SECONDS [TARGET ...]``: every target in turn, over and over, until the time is up.

120 seconds before a commit, 28800 overnight. Failing inputs are made small, printed, and kept in ``.hypothesis``, from
where the next run and the tests try them first. The exit code is 1 if there were any.

``--atheris`` lets coverage choose the inputs, which needs ``pip install infernix-plugin[fuzz]``; each target then has
its share of the time in a process of its own, and inputs that led somewhere new are kept for the next run.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from importlib.util import find_spec

from hypothesis import seed

from tests.fuzz import coverage_guided
from tests.fuzz.check import check_of
from tests.fuzz.targets import TARGETS, Target

EXAMPLES = 300


def attempt(name: str, target: Target, number: int, outcomes: Counter[str]) -> None:
    """Try new inputs; the first fault is raised, with the smallest input that has it."""
    seed(number)(check_of(name, target, outcomes, examples=EXAMPLES))()


def at_random(seconds: float, names: list[str]) -> bool:
    """Try random inputs of all targets; whether there were no faults."""
    end = time.monotonic() + seconds
    first = time.time_ns() % (1 << 32)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names}
    failed: list[str] = []
    number = first
    while time.monotonic() < end and len(failed) < len(outcomes):
        for name in [name for name in outcomes if name not in failed]:
            try:
                attempt(name, TARGETS[name], number, outcomes[name])
            except Exception:
                failed.append(name)
                print(f"{name}: a fault\n{traceback.format_exc()}", flush=True)
            if time.monotonic() >= end:
                break
        number += 1
    print(f"seeds {first} to {number}")
    for name, counts in outcomes.items():
        print(f"{name}: {sum(counts.values())} inputs, {dict(counts.most_common())}{', FAULT' * (name in failed)}")
    return not failed


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("seconds", type=float)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--atheris", action="store_true", help="guided by coverage")
    given = parser.parse_args(arguments)
    names = given.targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}")
    if not given.atheris:
        return 0 if at_random(given.seconds, names) else 1
    if find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install infernix-plugin[fuzz]")
    return 0 if coverage_guided.run(given.seconds, names) else 1


if __name__ == "__main__":
    sys.exit(main())
