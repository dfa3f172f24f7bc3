"""The wall-clock limit of a cold compile: what is refused, what is left behind, what is not charged."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint
from infernix_plugin.errors import ConstraintTooLarge, InvalidGrammar
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import And, Grammar, Repeat, chars
from infernix_plugin.grammar.normalize.intersections import lower_intersections
from infernix_plugin.matching import Outcome, cache
from infernix_plugin.matching.compiled import CompiledGrammar
from tests.matching.support import DOMAIN

PATIENCE = 20.0

CONSTRAINTS = {
    "grammar": OutputConstraint.grammar('root ::= "a" root? "b"'),
    "regex": OutputConstraint.regex("[ab]{1,3}c"),
    "schema": OutputConstraint.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}),
    "choice": OutputConstraint.choice(["ab", "ac"]),
}


class Clock:
    """Time that moves by ``step`` seconds at each look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_past_the_limit_is_refused_and_leaves_nothing(
    constraint: OutputConstraint, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = ConstraintCompiler(DOMAIN, max_compile_seconds=2.5)
    monkeypatch.setattr(budget, "monotonic", Clock(step=3.0))
    with pytest.raises(budget.CompileTimeout, match=r"max_compile_seconds, which is 2\.5"):
        compiler.compile(constraint)
    assert compiler.stats().entries == 0
    monkeypatch.setattr(budget, "monotonic", Clock(step=0.0))
    assert compiler.prepare(constraint).outcome is Outcome.BUILT
    assert compiler.prepare(constraint).outcome is Outcome.HIT


def test_the_wait_for_a_slot_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(step=0.0)
    monkeypatch.setattr(budget, "monotonic", clock)
    compiler = ConstraintCompiler(DOMAIN, max_cold_compiles=1, max_compile_seconds=1.0)
    held, release = threading.Event(), threading.Event()

    def hostile() -> None:
        held.set()
        assert release.wait(PATIENCE)
        raise ConstraintTooLarge("hostile")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(compiler._cache.get, "hostile", hostile)
        assert held.wait(PATIENCE)
        queued = pool.submit(compiler.prepare, CONSTRAINTS["regex"])
        clock.now += 100.0
        release.set()
        assert queued.result(PATIENCE).outcome is Outcome.BUILT
        assert isinstance(first.exception(PATIENCE), ConstraintTooLarge)


def test_an_intersection_kept_for_its_size_is_not_kept_for_its_time() -> None:
    letters = chars(("a", "b"))
    both = Grammar({"root": And((Repeat(letters, 1, 9), Repeat(letters, 3, 12)))}, "root")
    lower_intersections(both)
    with budget.limit(0), pytest.raises(budget.CompileTimeout):
        lower_intersections(both)


def test_the_budget_ends_with_its_block_and_nests() -> None:
    with budget.limit(0):
        with budget.limit(60):
            budget.checkpoint()
        with pytest.raises(budget.CompileTimeout):
            budget.checkpoint()
    budget.checkpoint()


def test_a_refusal_is_remembered_and_each_caller_has_its_own_error() -> None:
    compiler = ConstraintCompiler(DOMAIN)
    refused = OutputConstraint.grammar('root ::= "a" missing')
    with pytest.raises(InvalidGrammar) as first:
        compiler.compile(refused)
    with pytest.raises(InvalidGrammar) as second:
        compiler.compile(refused)
    assert compiler.stats().failed == 1
    assert str(second.value) == str(first.value)
    assert second.value is not first.value


def test_remembered_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_REFUSALS", 2)
    compiler = ConstraintCompiler(DOMAIN)
    for name in ("x", "y", "z", "z", "y", "x"):
        with pytest.raises(InvalidGrammar, match=name):
            compiler.compile(OutputConstraint.grammar(f"root ::= {name}"))
    assert compiler.stats().failed == 4


def test_those_who_wait_get_copies() -> None:
    builds: cache.BuildCache[CompiledGrammar] = cache.BuildCache(100, 1)
    started, release = threading.Event(), threading.Event()

    def fail() -> CompiledGrammar:
        started.set()
        assert release.wait(PATIENCE)
        raise ConstraintTooLarge("too large", location="1:2", hint="less")

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(builds.get, "key", fail)]
        assert started.wait(PATIENCE)
        calls += [pool.submit(builds.get, "key", fail) for _ in range(2)]
        while builds.stats().waited < 2:
            threading.Event().wait(0.001)
        release.set()
        errors = [call.exception(PATIENCE) for call in calls]
    assert {str(error) for error in errors} == {"too large (at 1:2). Hint: less"}
    assert len({id(error) for error in errors}) == 3


def test_what_is_done_once_for_all_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(step=0.0)
    monkeypatch.setattr(budget, "monotonic", clock)
    with budget.limit(1.0):
        with budget.uncharged():
            clock.now += 100.0
        clock.now += 0.5
        budget.checkpoint()
        clock.now += 0.6
        with pytest.raises(budget.CompileTimeout):
            budget.checkpoint()
