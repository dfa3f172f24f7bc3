"""What a server process and its children hold in memory, and what its metrics say, sampled while it works."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import TracebackType

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from infernix_plugin.entrypoints.demo.server import ServerProcess

MIB = 1 << 20
PROCESSES = {
    "vllm": "API server",
    "VLLM::APIServer": "API server",
    "VLLM::EngineCor": "engine core",
    "VLLM::Worker": "worker",
}
"""What the processes of a server are, by the names that the kernel has of them, which are short."""
HELPERS = "helpers"
"""All others: those that compile constraints, and Python's own that tracks resources."""
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by metric name and labels."""


@dataclass
class Watched:
    """One sample each ``INTERVAL`` seconds: seconds since the start, bytes, metrics."""

    seconds: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    """Bytes of all processes together."""
    parts: list[dict[str, int]] = field(default_factory=list)
    """The same by name of the process."""
    metrics: list[Samples] = field(default_factory=list)

    def slope(self, name: str, skip: float) -> float:
        """Return the growth of a process's memory in MiB a minute, by least squares, from ``skip`` seconds on."""
        kept = [(at, part.get(name, 0)) for at, part in zip(self.seconds, self.parts, strict=True) if at >= skip]
        at, size = (np.array(column, dtype=float) for column in zip(*kept, strict=True))
        return float(np.polyfit(at / 60, size / MIB, 1)[0])

    def series(self, name: str, **labels: str) -> list[float]:
        """Return the sum of a metric over the labels that are not given, sample by sample."""
        wanted = set(labels.items())
        return [
            sum(value for (found, its), value in samples.items() if found == name and wanted <= set(its))
            for samples in self.metrics
        ]


class ServerWatch:
    """Samples a server in a thread for as long as the ``with`` block runs."""

    def __init__(self, server: ServerProcess, interval: float = 2.0) -> None:
        self.watched = Watched()
        self._server = server
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ServerWatch:
        self._started = perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                metrics = our_metrics(self._server)
            except OSError:
                break  # it is gone
            self.watched.seconds.append(perf_counter() - self._started)
            parts = resident_bytes(self._server.pid)
            self.watched.parts.append(parts)
            self.watched.resident.append(sum(parts.values()))
            self.watched.metrics.append(metrics)
            self._over.wait(self._interval)


def our_metrics(server: ServerProcess) -> Samples:
    """Return this plugin's metrics as the server exports them now."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(server.metrics_text())
        for sample in family.samples
        if sample.name.startswith("infernix_") and not sample.name.endswith("_created")
    }


def resident_bytes(session: int) -> dict[str, int]:
    """Return the resident bytes of the processes of a session by what they are. Shared pages count in each."""
    page, sizes = os.sysconf("SC_PAGE_SIZE"), Counter[str]()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text(encoding="ascii", errors="replace").partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[3]) == session:
                sizes[PROCESSES.get(name, HELPERS)] += int(fields[21]) * page
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return dict(sizes)
