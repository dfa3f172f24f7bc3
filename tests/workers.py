"""How pytest-xdist's workers share the suite: one runs the engines, one after the other, and the rest run what is left.

Engines then seldom compete for the cores, the one real server is started once, and each file stays in one worker with
its fixtures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ONE_SERVER, ENGINES, OTHERS = range(3)


def engines_first(items: list[pytest.Item]) -> None:
    """Order files: those that ask the one real server, those that start engines of their own, all others.

    The others stand backwards: they are taken from the end, and so run in the order in which they were found.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        ranks[item.path] = min(ranks.get(item.path, OTHERS), _rank(item))
    place = {path: -place if ranks[path] == OTHERS else place for place, path in enumerate(ranks)}
    items.sort(key=lambda item: (ranks[item.path], place[item.path]))


def _rank(item: pytest.Item) -> int:
    if "tiny_server" in getattr(item, "fixturenames", ()):
        return ONE_SERVER
    return ENGINES if any(item.iter_markers("engine")) or any(item.iter_markers("server")) else OTHERS


class FromBothEnds(LoadScopeScheduling):
    """Files are the units of work: the first worker takes them from the front, every other one from the end."""

    def __init__(self, config, log=None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the order is that of engines_first

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        front = min(self.nodes, key=lambda each: each.gateway.id)  # they are listed as they got ready
        if node is not front:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
