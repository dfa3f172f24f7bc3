"""Turns are short while a grammar is compiled, and as before afterwards, however the compile ends."""

import sys
import threading

import pytest

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler, plan
from infernix_plugin.matching.turns import SECONDS, short_turns
from tests.matching.support import DOMAIN


@pytest.fixture(autouse=True)
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield
    sys.setswitchinterval(before)


def interval() -> float:
    return pytest.approx(sys.getswitchinterval(), abs=2e-6)  # it is kept in whole microseconds


def test_the_last_block_to_end_restores_them():
    with short_turns():
        with short_turns():
            assert interval() == SECONDS
        assert interval() == SECONDS
    assert interval() == 0.004


def test_shorter_ones_stay():
    sys.setswitchinterval(SECONDS / 2)
    with short_turns():
        assert interval() == SECONDS / 2
    assert interval() == SECONDS / 2


def test_blocks_of_threads_overlap():
    inside, leave = threading.Barrier(3), threading.Event()

    def block():
        with short_turns():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=block) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert interval() == SECONDS
    leave.set()
    for thread in threads:
        thread.join()
    assert interval() == 0.004


@pytest.mark.parametrize("pattern", ["a+", "a("])
def test_a_compile_has_them(monkeypatch, pattern):
    seen = []
    real = plan.build

    def build(*arguments):
        seen.append(sys.getswitchinterval())
        return real(*arguments)

    monkeypatch.setattr(plan, "build", build)
    try:
        ConstraintCompiler(DOMAIN).compile(OutputConstraint.regex(pattern))
    except ConstraintError:
        assert pattern == "a("
    assert seen == [pytest.approx(SECONDS, abs=2e-6)]
    assert interval() == 0.004
