"""A real `vllm serve` for tests, on one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from infernix_plugin.entrypoints.demo.server import ServerProcess


@contextmanager
def served(arguments: Sequence[str], log: Path) -> Iterator[ServerProcess]:
    """A healthy server, at the address ``.url``, with the log ``.log``."""
    from infernix_plugin.entrypoints.demo.server import serve

    with pytest.MonkeyPatch.context() as environment:
        # One thread: on a busy machine, threads that wait for each other cost more than a tiny model has to compute.
        environment.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        environment.setenv("OMP_NUM_THREADS", "1")
        with serve(arguments, log=log) as server:
            server.wait_until_healthy(lambda waited: None)
            yield server
