"""The short run of every fuzz target; ``python -m tests.fuzz.run SECONDS`` is the long one."""

import os
import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tests.fuzz.check import check_of
from tests.fuzz.run import attempt, main
from tests.fuzz.targets import TARGETS, Target, outcome

ROOT = Path(__file__).parents[2]
EXAMPLES = 100


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_leave_a_reader(name: str) -> None:
    outcomes: Counter[str] = Counter()
    check_of(name, TARGETS[name], outcomes, examples=EXAMPLES)()
    assert outcomes["read"] > 0, "some inputs have to be good"


@pytest.mark.parametrize("error", [KeyError, RecursionError, MemoryError])
def test_the_long_run_finds_a_fault(error: type[Exception], monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)

    def fail_at_x(text: str) -> None:
        if "x" in text:
            raise error("planted")

    with pytest.raises(error, match="planted"):
        attempt("planted", Target(st.text("xy"), lambda text: outcome(lambda: fail_at_x(text))), 1, Counter())


@pytest.fixture
def keeping(monkeypatch, tmp_path):
    """Outside CI, in a folder without faults."""
    monkeypatch.chdir(tmp_path)
    profile = settings.get_current_profile_name()
    settings.load_profile("default")
    yield
    settings.load_profile(profile)


@pytest.mark.usefixtures("keeping")
def test_a_fault_is_tried_again_first() -> None:
    tried: list[int] = []

    def fail_at_a_number(number: int) -> str:
        tried.append(number)
        assert number != 123_456_789
        return "read"

    numbers = Target(st.just(123_456_789) | st.integers(0, 1 << 40), fail_at_a_number)
    for again in range(2):
        tried.clear()
        with pytest.raises(AssertionError):
            check_of("numbers", numbers, Counter(), examples=500)()
        assert again == 0 or tried[0] == 123_456_789


def test_without_atheris_the_command_says_so(capsys, monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.run.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["1", "--atheris"])
    assert "infernix-plugin[fuzz]" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["1", "no such target"])
    assert "no such target" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed (the extra `fuzz`)")
def test_atheris_drives_the_same_targets(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.chdir(tmp_path)
    assert main(["4", "choice", "--atheris"]) == 0
    inputs, edges = re.search(r"^choice: (\d+) inputs, (\d+) edges", capsys.readouterr().out).groups()
    assert int(inputs) > 1
    assert int(edges) > 100
