"""The short run of every fuzz target; ``python -m tests.fuzz.run SECONDS`` is the long one."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.run import attempt
from tests.fuzz.targets import TARGETS, Target, outcome

EXAMPLES = 100


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_leave_a_reader(name: str) -> None:
    target = TARGETS[name]

    @given(target.inputs)
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def check(given_input: object) -> None:
        target.read(given_input)

    check()


@pytest.mark.parametrize("error", [KeyError, RecursionError, MemoryError])
def test_the_long_run_finds_a_fault(error: type[Exception]) -> None:
    def fail_at_x(text: str) -> None:
        if "x" in text:
            raise error("planted")

    with pytest.raises(error, match="planted"):
        attempt(Target(st.text("xy"), lambda text: outcome(lambda: fail_at_x(text))), 1, Counter())
