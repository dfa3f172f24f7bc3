"""The time budget of one compile: set around it, looked at in every loop whose length the constraint decides.

Counts of nodes, states and rules bound one step each; only a clock bounds their product. The budget travels in a
context variable, so the steps need no parameter for it, and without a budget a look costs a few dozen nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import interest

Item = TypeVar("Item")

_STRIDE = 64
"""Items of a loop between two looks at the clock, where an item takes less than a look or not much more."""


class CompileTimeout(ConstraintTooLarge):
    """The compile took longer than ``max_compile_seconds``.

    Code that answers a :class:`ConstraintTooLarge` with another way to compile must let this one pass.
    """


class CompileCrash(ConstraintTooLarge):
    """The process that compiled the constraint ended before it had an answer, most likely for lack of memory."""


def timeout(time: float) -> CompileTimeout:
    """The error of a compile that was given ``time`` seconds."""
    return CompileTimeout(
        f"The compile takes longer than max_compile_seconds, which is {time:g}",
        hint="Simplify the constraint, or raise max_compile_seconds in the server's settings.",
    )


def busy() -> CompileTimeout:
    """The error of a compile that would have had to wait for too many others."""
    return CompileTimeout(
        "The compile takes long, and too many such compiles wait already",
        hint="Send the request again later, or simplify the constraint.",
    )


@dataclass(slots=True)
class _Budget:
    seconds: float
    deadline: float
    clock: Callable[[], float]


_current: ContextVar[_Budget | None] = ContextVar("compile_budget", default=None)
_watch: ContextVar[Callable[[float], None] | None] = ContextVar("compile_watch", default=None)


@contextmanager
def limit(time: float, clock: Callable[[], float] | None = None) -> Iterator[None]:
    """Give the code inside, on this thread, so many seconds from now: of wall time, or by another ``clock``."""
    clock = clock or monotonic
    token = _current.set(_Budget(time, clock() + time, clock))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def uncharged() -> Iterator[None]:
    """Let the code inside take time from nobody's budget: what is done once for all constraints, such as imports."""
    budget = _current.get()
    started = budget.clock() if budget is not None else 0.0
    try:
        yield
    finally:
        if budget is not None:
            budget.deadline += budget.clock() - started


def seconds() -> float | None:
    """The time that the surrounding :func:`limit` gives in all; ``None`` without one."""
    budget = _current.get()
    return None if budget is None else budget.seconds


@contextmanager
def watched_by(look: Callable[[float], None]) -> Iterator[None]:
    """Call ``look`` at every :func:`checkpoint` of the code inside, on this thread, with its argument."""
    token = _watch.set(look)
    try:
        yield
    finally:
        _watch.reset(token)


def checkpoint(coming: float = 0.0) -> None:
    """Stop here if the time is over, or if nobody waits for the result.

    Args:
        coming: how many seconds will pass, about, until the next look.

    Raises:
        CompileTimeout: the budget of the surrounding :func:`limit` is used up.
        CompileAbandoned: see :func:`.interest.check`.
    """
    budget = _current.get()
    if budget is not None:
        if budget.clock() >= budget.deadline:
            raise timeout(budget.seconds)
        interest.check()
        look = _watch.get()
        if look is not None:
            look(coming)


def watched(items: Iterable[Item]) -> Iterator[Item]:
    """The items, also those added meanwhile, with a :func:`checkpoint` before the first and then now and again."""
    for count, item in enumerate(items):
        if count % _STRIDE == 0:
            checkpoint()
        yield item


def drained(pending: list[Item]) -> Iterator[Item]:
    """The last item taken away, until there is none, with a :func:`checkpoint` as in :func:`watched`."""
    count = 0
    while pending:
        if count % _STRIDE == 0:
            checkpoint()
        count += 1
        yield pending.pop()
