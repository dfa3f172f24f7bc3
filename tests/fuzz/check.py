"""One property of every target: whatever it is given, it returns an outcome. A fault is what it raises instead."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.fuzz.targets import Target

FAULTS = ".hypothesis/fuzz"


def check_of(name: str, target: Target, outcomes: Counter[str], *, examples: int) -> Callable[[], None]:
    """Return hypothesis's test of a target; inputs that fail are kept in a folder of the target's own, from where
    every later run of that target tries them first. CI keeps nothing and always tries the same ones."""
    kept = {} if settings().derandomize else {"database": DirectoryBasedExampleDatabase(f"{FAULTS}/{name}")}
    chosen: dict[str, Any] = {"max_examples": examples, "deadline": None, "print_blob": True, **kept}

    @settings(suppress_health_check=list(HealthCheck), **chosen)
    @given(target.inputs)
    def check(given_input: object) -> None:
        outcomes[target.read(given_input)] += 1

    return check
