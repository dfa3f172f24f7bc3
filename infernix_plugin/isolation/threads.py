"""Plans that are made on the threads of this process, where there are no workers: ordinary ones beside those that take
long, as with workers. A thread cannot be ended, but what it does in Python looks at the clock now and again, and gives
way there; before native code it says how long that will take.
"""

from __future__ import annotations

from time import thread_time

from infernix_plugin.grammar import budget, interest
from infernix_plugin.isolation import places
from infernix_plugin.isolation.places import Busy, Places
from infernix_plugin.matching.plan import Job, Plan, Planner


class _TakesLong(Exception):
    """It would need a long place, and none is free."""


class ThreadedPlanner:
    """Makes plans on the calling thread, when that has a place."""

    def __init__(self, local: Planner, count: int) -> None:
        """Let ``local`` make them: so many short ones at once, and as many that take long."""
        self._local = local
        self.places = Places(count)

    def plan(self, job: Job, *, spare: bool = False) -> Plan:
        """Work out a plan; see :class:`~infernix_plugin.matching.plan.Planner`."""
        turn = _Turn(self.places)
        try:
            with turn, budget.watched_by(turn.look):
                return self._local.plan(job, spare=spare)
        except _TakesLong:
            pass
        try:
            self.places.wait_for_long()
        except Busy:
            raise budget.busy() from None
        try:
            return self._local.plan(job, spare=spare)
        finally:
            self.places.long.release()


class _Turn:
    """A place: a short one first, and a long one when the time is over."""

    def __init__(self, its: Places) -> None:
        self._places = its

    def __enter__(self) -> None:
        interest.acquire(self._places.short)
        self._held = self._places.short
        self._until = thread_time() + places.SHORT_SECONDS

    def __exit__(self, *_: object) -> None:
        self._held.release()

    def look(self, coming: float) -> None:
        """Go on in a long place if the time is over, or would be after ``coming`` seconds.

        Raises:
            _TakesLong: there is none.
        """
        if self._held is self._places.short and thread_time() + coming >= self._until:
            if not self._places.long.acquire(blocking=False):
                raise _TakesLong
            self._held.release()
            self._held = self._places.long
