"""A real `vllm serve` for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infernix_plugin.entrypoints.demo.server import ServerProcess


@contextmanager
def served(arguments: Sequence[str], log: Path) -> Iterator[ServerProcess]:
    """A healthy server, at the address ``.url``, with the log ``.log``."""
    from infernix_plugin.entrypoints.demo.server import serve

    with serve(arguments, log=log) as server:
        server.wait_until_healthy(lambda waited: None)
        yield server
