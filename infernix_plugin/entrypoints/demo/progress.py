"""Say that something is under way: a spinner on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape

from infernix_plugin.entrypoints.generate.waiting import EVERY


@contextlib.contextmanager
def under_way(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Show ``what`` while the body runs; it reports twice a second how long that takes so far."""
    calls = itertools.count(1)
    with console.status(what) as status:

        def passed(waited: str) -> None:
            line = escape(f"{what}: {waited}")
            status.update(line)
            if not console.is_terminal and next(calls) % EVERY == 0:
                console.print(line)

        yield passed
