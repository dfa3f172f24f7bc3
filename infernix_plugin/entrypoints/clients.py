"""Clients that wait until a thread has judged their constraints: some leave, or their server ends before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from infernix_plugin.grammar.interest import wanted_while

Result = TypeVar("Result")

_waiting: dict[Event, Any] = {}
"""What ends the wait of a client, and the configuration of the model that he waits for."""


async def answered(threads: ThreadPoolExecutor, model_config: Any, judge: Callable[[], Result]) -> Result:
    """Run ``judge`` on one of ``threads``. What it compiles is given up when the client leaves or the server ends.

    Raises:
        CompileAbandoned: the server ends.
        Exception: whatever ``judge`` raised.
    """
    over = Event()

    def run() -> Result:
        with wanted_while(lambda: not over.is_set()):
            return judge()

    _waiting[over] = model_config
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, run)
    finally:
        over.set()
        del _waiting[over]


def give_up(model_config: Any) -> None:
    """End the wait of all clients of an engine that is shut down. Thread-safe."""
    for over, waited_for in list(_waiting.items()):
        if waited_for is model_config:
            over.set()
