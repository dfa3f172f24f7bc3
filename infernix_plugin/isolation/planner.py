"""Plans that are made in a worker, or here if there is none."""

from __future__ import annotations

import logging

from infernix_plugin.grammar import budget
from infernix_plugin.isolation.nursery import Setup
from infernix_plugin.isolation.places import Busy
from infernix_plugin.isolation.pool import Crash, NoWorkers, OutOfTime, Pool
from infernix_plugin.isolation.threads import ThreadedPlanner
from infernix_plugin.matching import wire
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.select import Engines
from infernix_plugin.matching.plan import Job, Plan, Planner

logger = logging.getLogger(__name__)

MAX_STARTS = 3
"""So often a nursery is started that had no worker when one was needed."""


class IsolatedPlanner:
    """Makes plans in the workers of a pool."""

    def __init__(self, setup: Setup, domain: TokenDomain, engines: Engines, local: Planner, places: int) -> None:
        """Describe the pool, whose processes start with :meth:`start` or on first use.

        Args:
            setup: of the nursery.
            domain: the vocabulary.
            engines: which will run the plans here.
            local: for when there are no workers.
            places: how many jobs that take long run at once.
        """
        self._setup = setup
        self._engines = engines
        self._local = ThreadedPlanner(local, places)
        self._failures = 0
        self.pool = Pool([setup.packed(), *wire.packed_domain(domain)], count=places, seconds=setup.seconds)

    def plan(self, job: Job, *, spare: bool = False) -> Plan:
        """Work out a plan; see :class:`~infernix_plugin.matching.plan.Planner`."""
        request = wire.packed_job(job, spare=spare)
        crashed = False
        while self._failures < MAX_STARTS:
            try:
                kind, *frames = self.pool.run(request)
            except OutOfTime:
                raise budget.timeout(self._setup.seconds) from None
            except Busy:
                raise budget.busy() from None
            except Crash:
                if not crashed:  # somebody else may have ended the process
                    crashed = True
                    continue
                raise budget.CompileCrash(
                    "The process that compiled the constraint has ended; such constraints are too much for its engine.",
                    hint="Simplify the constraint.",
                ) from None
            except NoWorkers as error:
                self._failures += 1
                if self._failures == MAX_STARTS:
                    logger.warning("Constraints are compiled inside of this process from now on: %s", error)
                continue
            self._failures = 0
            if kind == b"memory":
                raise budget.CompileCrash(
                    f"The compile takes more memory than max_compile_bytes, which is {self._setup.memory_bytes}",
                    hint="Simplify the constraint, or raise max_compile_bytes in the server's settings.",
                )
            if kind == b"error":
                raise wire.unpacked_error(frames)
            return wire.unpacked_plan(frames, self._engines)
        return self._local.plan(job, spare=spare)
