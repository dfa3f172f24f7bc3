"""The wall-clock budget of one compile: set around it, looked at in every loop whose length the constraint decides.

Counts of nodes, states and rules bound one step each; only a clock bounds their product. The budget travels in a
context variable, so the steps need no parameter for it, and without a budget a look costs a few dozen nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic

from infernix_plugin.errors import ConstraintTooLarge


class CompileTimeout(ConstraintTooLarge):
    """The compile took longer than ``max_compile_seconds``.

    Code that answers a :class:`ConstraintTooLarge` with another way to compile must let this one pass.
    """


@dataclass(frozen=True, slots=True)
class _Budget:
    seconds: float
    deadline: float


_current: ContextVar[_Budget | None] = ContextVar("compile_budget", default=None)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Give the code inside, on this thread, ``seconds`` of wall time from now."""
    token = _current.set(_Budget(seconds, monotonic() + seconds))
    try:
        yield
    finally:
        _current.reset(token)


def checkpoint() -> None:
    """Stop here if the time is over.

    Raises:
        CompileTimeout: the budget of the surrounding :func:`limit` is used up.
    """
    budget = _current.get()
    if budget is not None and monotonic() >= budget.deadline:
        raise CompileTimeout(
            f"The compile takes longer than max_compile_seconds, which is {budget.seconds:g}",
            hint="Simplify the constraint, or raise max_compile_seconds in the server's settings.",
        )
