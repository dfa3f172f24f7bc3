"""Compiles on threads of the same process: ordinary constraints do not wait for those that take long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.interest import CompileAbandoned, wanted_while
from infernix_plugin.isolation import places
from infernix_plugin.isolation.threads import ThreadedPlanner
from infernix_plugin.matching.plan import Job
from infernix_plugin.settings import Settings
from infernix_plugin.structured_output.compilers import RequestCompiler
from tests.framing.calling import DOMAIN
from tests.hostile.corpus import FAMILIES

PATIENCE = 60


class Local:
    """Makes plans: those of a job whose name begins with ``slow`` take until they are let go."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.done = {name: threading.Event() for name in ("slow 1", "slow 2", "slow 3")}
        self.coming = 0.0

    def plan(self, job: Job, *, spare: bool = False) -> str:
        name = job.structural_tag
        self.begun[name] += 1
        with budget.limit(PATIENCE):
            if name in self.done:
                budget.checkpoint(coming=self.coming)
                while not self.done[name].is_set():
                    budget.checkpoint()
        return name


@pytest.fixture
def local() -> Local:
    return Local()


@pytest.fixture
def planner(local: Local, monkeypatch: pytest.MonkeyPatch) -> ThreadedPlanner:
    """One place of each kind."""
    monkeypatch.setattr(places, "SHORT_SECONDS", 0.02)
    return ThreadedPlanner(local, 1)


@pytest.fixture
def ask(planner: ThreadedPlanner, local: Local) -> Iterator[Callable[..., Future[str]]]:
    def plan(name: str, left: threading.Event) -> str:
        with wanted_while(lambda: not left.is_set()):
            return planner.plan(Job(structural_tag=name))

    with ThreadPoolExecutor(8) as threads:
        yield lambda name, left=None: threads.submit(plan, name, left or threading.Event())
        for done in local.done.values():
            done.set()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000 * PATIENCE):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never came")


def test_a_long_one_begins_again_when_there_is_a_place(planner, local, ask):
    first = ask("slow 1")
    until(lambda: planner.places.long._value == 0)
    second = ask("slow 2")
    until(lambda: planner.places.waiting == 1)
    assert ask("quick").result(PATIENCE) == "quick"
    assert not first.done()
    assert not second.done()
    local.done["slow 2"].set()
    local.done["slow 1"].set()
    assert (first.result(PATIENCE), second.result(PATIENCE)) == ("slow 1", "slow 2")
    assert local.begun == {"slow 1": 1, "slow 2": 2, "quick": 1}
    assert (planner.places.short._value, planner.places.long._value, planner.places.waiting) == (1, 1, 0)


def test_what_cannot_be_interrupted_is_in_a_long_place_before(planner, local, ask, monkeypatch):
    monkeypatch.setattr(places, "SHORT_SECONDS", 10.0 * PATIENCE)
    local.coming = 20.0 * PATIENCE
    first = ask("slow 1")
    until(lambda: planner.places.long._value == 0)
    assert ask("quick").result(PATIENCE) == "quick"
    local.done["slow 1"].set()
    assert first.result(PATIENCE) == "slow 1"


def test_the_line_is_of_limited_length_and_is_left_by_who_is_not_wanted(planner, local, ask, monkeypatch):
    monkeypatch.setattr(places, "MAX_WAITING", 1)
    first, left = ask("slow 1"), threading.Event()
    until(lambda: planner.places.long._value == 0)
    second = ask("slow 2", left)
    until(lambda: planner.places.waiting == 1)
    with pytest.raises(budget.CompileTimeout, match="too many such compiles wait"):
        ask("slow 3").result(PATIENCE)
    left.set()
    assert isinstance(second.exception(PATIENCE), CompileAbandoned)
    until(lambda: planner.places.waiting == 0)
    assert not first.done()


def test_a_failure_gives_the_place_back(planner, local):
    def fail(job: Job, *, spare: bool = False) -> None:
        raise ValueError("no")

    local.plan = fail
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            planner.plan(Job(structural_tag="x"))


def test_a_server_that_does_not_isolate_its_compiles(monkeypatch):
    """Expensive constraints for all long places, and ordinary ones beside them."""
    compiler = RequestCompiler(None, None, Settings(isolate_compiles=False, max_compile_seconds=600.0))
    monkeypatch.setattr("infernix_plugin.structured_output.compilers.domain_of", lambda *_: DOMAIN)
    compiler.start_warming().join(PATIENCE)
    planner, left = compiler.compiler._planner, threading.Event()
    assert isinstance(planner, ThreadedPlanner)

    def expensive(number: int) -> None:
        with wanted_while(lambda: not left.is_set()):
            slow = FAMILIES["schema"]["many patterns"]().source
            compiler.prepare(OutputConstraint.json_schema(slow[:-1] + f', "title": "{number}"}}'), [])

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(expensive, number) for number in range(3)]
        until(lambda: planner.places.long._value == 0 and planner.places.waiting == 1)
        assert compiler.prepare(OutputConstraint.regex("[ab]+c"), []).compiled.engine == "llguidance"
        assert not any(each.done() for each in running)
        left.set()
        assert all(isinstance(each.exception(PATIENCE), CompileAbandoned) for each in running)


def test_the_time_of_native_code_is_told_before(monkeypatch):
    told = []
    compiler = ConstraintCompiler(DOMAIN)
    with budget.watched_by(told.append):
        compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | ' + "[a-z]+ [0-9]* " * 20))
    assert max(told) > 0
