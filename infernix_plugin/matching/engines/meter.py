"""What the masks of one request may cost.

A mask is computed while every request of the batch waits for it, and xgrammar's native code cannot be interrupted: for
a very ambiguous grammar, which may be a line long, one mask takes seconds, and the next one more. So masks are paid for
from an allowance that every mask renews, and a request that has used it up ends, alone. What counts is the processor
time of the thread, so that a busy machine takes nothing away.
"""

from __future__ import annotations

from time import thread_time

from infernix_plugin.errors import ConstraintTooLarge

MEAN_SECONDS = 0.1
"""What a mask may take on average."""
EXCESS_SECONDS = 2.0
"""What all masks of one request together may take beyond that."""


class Meter:
    """The allowance of one request, shared by its matcher and the forks of it."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = EXCESS_SECONDS

    def start(self) -> float:
        """The time to give to :meth:`stop`."""
        return thread_time()

    def stop(self, started: float) -> None:
        """Pay for a mask.

        Raises:
            ConstraintTooLarge: the allowance is used up. It stays so.
        """
        if self._left >= 0:
            self._left = min(self._left + MEAN_SECONDS - (thread_time() - started), EXCESS_SECONDS)
        if self._left < 0:
            raise ConstraintTooLarge(
                f"the masks of this grammar take more than {MEAN_SECONDS:g} s each",
                hint="Write the grammar so that few rules can match the same text.",
            )
