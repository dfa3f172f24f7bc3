"""Single flight, bounded builds, eviction, errors that are shared and forgotten, builds that nobody waits for."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from infernix_plugin.grammar import interest
from infernix_plugin.matching.cache import BuildCache, CacheStats, Outcome

PATIENCE = 20.0


@dataclass
class Thing:
    name: str
    memory_bytes: int = 10


def test_the_second_request_is_a_hit() -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    first, outcome = cache.get("a", lambda: Thing("a"))
    assert outcome is Outcome.BUILT
    again, outcome = cache.get("a", lambda: pytest.fail("built twice"))
    assert again is first
    assert outcome is Outcome.HIT
    assert cache.stats() == CacheStats(hits=1, built=1, entries=1, bytes=10)


def test_requests_during_a_build_wait_for_it() -> None:
    cache: BuildCache[Thing] = BuildCache(100, 2)
    started, release = threading.Event(), threading.Event()
    builds = []

    def build() -> Thing:
        builds.append(1)
        started.set()
        assert release.wait(PATIENCE)
        return Thing("a")

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(cache.get, "a", build)
        assert started.wait(PATIENCE)
        others = [pool.submit(cache.get, "a", build) for _ in range(4)]
        while cache.stats().waited < 4:
            threading.Event().wait(0.001)
        release.set()
        results = [first.result(), *(other.result() for other in others)]
    assert len(builds) == 1
    assert len({id(value) for value, _ in results}) == 1
    assert [outcome for _, outcome in results] == [Outcome.BUILT, *[Outcome.WAITED] * 4]


def test_an_error_reaches_those_who_waited_and_is_then_forgotten() -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    started, release = threading.Event(), threading.Event()

    def fail() -> Thing:
        started.set()
        assert release.wait(PATIENCE)
        raise ValueError("no")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", fail)
        assert started.wait(PATIENCE)
        second = pool.submit(cache.get, "a", lambda: pytest.fail("built while being built"))
        while not cache.stats().waited:
            threading.Event().wait(0.001)
        release.set()
        for waiting in (first, second):
            with pytest.raises(ValueError, match="no"):
                waiting.result()
    assert cache.get("a", lambda: Thing("a"))[1] is Outcome.BUILT
    assert cache.stats().failed == 1


def test_builds_are_limited_and_hits_are_not() -> None:
    cache: BuildCache[Thing] = BuildCache(100, 2)
    cache.get("ready", lambda: Thing("ready"))
    lock, release = threading.Lock(), threading.Event()
    running, most = 0, 0
    two = threading.Event()

    def build() -> Thing:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                two.set()
        assert release.wait(PATIENCE)
        with lock:
            running -= 1
        return Thing("x")

    with ThreadPoolExecutor(6) as pool:
        slow = [pool.submit(cache.get, key, build) for key in range(6)]
        assert two.wait(PATIENCE)
        assert cache.get("ready", lambda: pytest.fail("a hit builds nothing"))[1] is Outcome.HIT
        release.set()
        assert {one.result()[1] for one in slow} == {Outcome.BUILT}
    assert most == 2


def test_the_least_recently_used_value_goes_first() -> None:
    cache: BuildCache[Thing] = BuildCache(30, 1)
    kept = {name: cache.get(name, lambda name=name: Thing(name))[0] for name in "abc"}
    cache.get("a", lambda: pytest.fail("evicted"))
    cache.get("d", lambda: Thing("d"))
    assert cache.stats() == CacheStats(hits=1, built=4, evicted=1, entries=3, bytes=30)
    assert cache.get("a", lambda: pytest.fail("evicted"))[0] is kept["a"]
    assert cache.get("b", lambda: Thing("b again"))[0].name == "b again"
    assert kept["b"].name == "b"


def test_a_value_over_the_budget_is_given_out_but_not_kept() -> None:
    cache: BuildCache[Thing] = BuildCache(30, 1)
    cache.get("small", lambda: Thing("small"))
    assert cache.get("big", lambda: Thing("big", 31))[0].name == "big"
    assert cache.get("big", lambda: Thing("big", 31))[1] is Outcome.BUILT
    assert cache.stats().bytes <= 30


def test_values_of_different_keys_do_not_wait_for_each_other() -> None:
    cache: BuildCache[Thing] = BuildCache(100, 2)
    started, release = threading.Event(), threading.Event()

    def slow() -> Thing:
        started.set()
        assert release.wait(PATIENCE)
        return Thing("slow")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.get, "slow", slow)
        assert started.wait(PATIENCE)
        assert cache.get("quick", lambda: Thing("quick"))[1] is Outcome.BUILT
        release.set()
        assert waiting.result()[1] is Outcome.BUILT


class Client:
    """Somebody who waits for a value, until he leaves."""

    def __init__(
        self, pool: ThreadPoolExecutor, cache: BuildCache[Thing], key: str, build: Callable[[], Thing]
    ) -> None:
        self._left = threading.Event()
        self.answer = pool.submit(self._get, cache, key, build)

    def _get(self, cache: BuildCache[Thing], key: str, build: Callable[[], Thing]) -> tuple[Thing, Outcome]:
        with interest.wanted_while(lambda: not self._left.is_set()):
            return cache.get(key, build)

    def leave(self) -> None:
        self._left.set()

    def gave_up(self) -> bool:
        return isinstance(self.answer.exception(PATIENCE), interest.CompileAbandoned)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(5) as made:
        yield made


class Build:
    """A build that looks whether it is wanted, and may end when it is told."""

    def __init__(self) -> None:
        self.started, self.release, self.looks = threading.Event(), threading.Event(), 0

    def __call__(self) -> Thing:
        self.started.set()
        while not self.release.wait(0.001):
            interest.check()
            self.looks += 1
        return Thing("a")

    def goes_on(self) -> bool:
        """Whether it looks again and is still wanted."""
        before = self.looks
        while self.looks < before + 2:
            if self.release.wait(0.001):
                return False
        return True


def waited(cache: BuildCache[Thing], count: int) -> None:
    while cache.stats().waited < count:
        threading.Event().wait(0.001)


def test_a_build_goes_on_for_whoever_still_waits(pool: ThreadPoolExecutor) -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    build = Build()
    first = Client(pool, cache, "a", build)
    assert build.started.wait(PATIENCE)
    second, third = (Client(pool, cache, "a", build) for _ in range(2))
    waited(cache, 2)
    first.leave()
    third.leave()
    assert third.gave_up()
    assert build.goes_on()
    build.release.set()
    assert second.answer.result(PATIENCE) == (Thing("a"), Outcome.WAITED)
    assert cache.get("a", lambda: pytest.fail("built twice"))[1] is Outcome.HIT


def test_a_build_that_nobody_waits_for_ends_and_is_forgotten(pool: ThreadPoolExecutor) -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    build = Build()
    first = Client(pool, cache, "a", build)
    assert build.started.wait(PATIENCE)
    second = Client(pool, cache, "a", build)
    waited(cache, 1)
    first.leave()
    second.leave()
    assert first.gave_up()
    assert second.gave_up()
    assert cache.stats() == CacheStats(waited=1, failed=1)
    assert cache.get("a", lambda: Thing("a"))[1] is Outcome.BUILT


def test_who_joins_a_build_while_it_is_given_up_builds_it(pool: ThreadPoolExecutor) -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    started, stopping, given_up = threading.Event(), threading.Event(), threading.Event()

    def build() -> Thing:
        started.set()
        try:
            while True:
                interest.check()
        finally:
            stopping.set()
            assert given_up.wait(PATIENCE)

    first = Client(pool, cache, "a", build)
    assert started.wait(PATIENCE)
    first.leave()
    assert stopping.wait(PATIENCE)  # who joins before that keeps the build alive
    late = Client(pool, cache, "a", lambda: Thing("late"))
    waited(cache, 1)
    given_up.set()
    assert first.gave_up()
    assert late.answer.result(PATIENCE) == (Thing("late"), Outcome.BUILT)


def test_who_leaves_while_he_waits_for_a_turn_has_none(pool: ThreadPoolExecutor) -> None:
    cache: BuildCache[Thing] = BuildCache(100, 1)
    build = Build()
    first = Client(pool, cache, "a", build)
    assert build.started.wait(PATIENCE)
    second = Client(pool, cache, "b", lambda: pytest.fail("built for nobody"))
    while cache.stats().building < 2:
        threading.Event().wait(0.001)
    second.leave()
    assert second.gave_up()
    build.release.set()
    assert first.answer.result(PATIENCE)[1] is Outcome.BUILT
