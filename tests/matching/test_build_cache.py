"""Single flight, bounded builds, eviction, errors that are shared and forgotten."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

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
