"""Pauses of the garbage collector: nested, from threads, and after errors."""

import gc
import threading

import pytest

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler
from infernix_plugin.matching.collector import collection_paused
from tests.matching.support import DOMAIN


def test_the_last_pause_to_end_goes_on_collecting():
    assert gc.isenabled()
    with collection_paused():
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off():
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_of_threads_overlap():
    inside, leave = threading.Barrier(3), threading.Event()

    def pause():
        with collection_paused():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=pause) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert not gc.isenabled()
    leave.set()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


def test_a_refused_constraint_leaves_it_on():
    with pytest.raises(ConstraintError):
        ConstraintCompiler(DOMAIN).compile(OutputConstraint.regex("a("))
    assert gc.isenabled()
