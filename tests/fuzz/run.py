"""``python -m tests.fuzz.run SECONDS [TARGET ...]``: every target in turn, over and over, until the time is up.

120 seconds before a commit, 28800 overnight. Failing inputs are made small, printed, and kept in ``.hypothesis``, from
where the next run and the tests try them first. The exit code is 1 if there were any.
"""

import sys
import time
import traceback
from collections import Counter

from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.targets import TARGETS, Target

EXAMPLES = 300


def attempt(target: Target, number: int, outcomes: Counter[str]) -> None:
    @seed(number)
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(target.inputs)
    def check(given_input: object) -> None:
        outcomes[target.read(given_input)] += 1

    check()


def main(seconds: float, names: list[str]) -> int:
    end = time.monotonic() + seconds
    first = time.time_ns() % (1 << 32)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names or TARGETS}
    failed: list[str] = []
    number = first
    while time.monotonic() < end and len(failed) < len(outcomes):
        for name in [name for name in outcomes if name not in failed]:
            try:
                attempt(TARGETS[name], number, outcomes[name])
            except Exception:
                failed.append(name)
                print(f"{name}: a fault\n{traceback.format_exc()}", flush=True)
            if time.monotonic() >= end:
                break
        number += 1
    print(f"seeds {first} to {number}")
    for name, counts in outcomes.items():
        print(f"{name}: {sum(counts.values())} inputs, {dict(counts.most_common())}{', FAULT' * (name in failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
