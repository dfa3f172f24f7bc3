"""The command: check, print, and say with the exit code what came of it."""

from __future__ import annotations

from rich.console import Console

from infernix_plugin.entrypoints.check.check import CheckOptions, check
from infernix_plugin.entrypoints.check.show import show

FINE, REFUSED = 0, 1


def run(options: CheckOptions, *, as_json: bool) -> int:
    """Check and print; returns the exit code.

    Raises:
        typer.BadParameter: something cannot be read; typer makes exit code 2 of it.
    """
    report = check(options)
    if as_json:
        print(report.to_json())
    else:
        show(report, Console(highlight=False, soft_wrap=True))
    return FINE if report.passed else REFUSED
