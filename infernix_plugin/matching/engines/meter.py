"""What the masks of one request may cost.

A mask is computed while every request of the batch waits for it, and xgrammar's native code cannot be interrupted: for
a very ambiguous grammar, which may be a line long, one mask takes seconds, and the next one more. So masks are paid for
from an allowance that every mask renews, and a request that has used it up ends, alone. What counts is the processor
time of the thread, so that a busy machine takes nothing away.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

from infernix_plugin.errors import ConstraintTooLarge


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a request's masks may take: ``mean`` seconds each, and all together ``excess`` seconds more."""

    mean: float
    excess: float

    def of(self, masks: int) -> float:
        """What so many masks may take."""
        return self.mean * masks + self.excess


class Meter:
    """The allowance of one request, shared by its matcher and the forks of it."""

    __slots__ = ("_allowance", "_left")

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._left = allowance.excess

    def start(self) -> float:
        """The time to give to :meth:`stop`."""
        return thread_time()

    def stop(self, started: float) -> None:
        """Pay for a mask, which renews the allowance.

        Raises:
            ConstraintTooLarge: the allowance is used up. It stays so.
        """
        if self._left >= 0:
            left = self._left + self._allowance.mean - (thread_time() - started)
            self._left = min(left, self._allowance.excess)
        self.check()

    def pay(self, started: float) -> None:
        """Pay for other work: what an ambiguous grammar takes for a token grows with the square of what was read."""
        if self._left >= 0:
            self._left -= thread_time() - started

    def check(self) -> None:
        """Refuse to go on once the allowance is used up.

        Raises:
            ConstraintTooLarge: it is.
        """
        if self._left < 0:
            raise ConstraintTooLarge(
                "the masks of this grammar take longer than max_mask_seconds and max_excess_seconds allow, which are "
                f"{self._allowance.mean:g} s each and {self._allowance.excess:g} s in all",
                hint="Write the grammar so that few rules can match the same text.",
            )
