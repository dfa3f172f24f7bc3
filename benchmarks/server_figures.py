"""Figures of the metrics that a :class:`~benchmarks.server_watch.ServerWatch` sampled, like those of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.server_watch import MIB, Watched

WINDOW = 10
"""Samples over which a rate is taken."""


def draw(watched: Watched, path: Path) -> None:
    """Draw the figures into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 2, figsize=(12, 10), layout="constrained", dpi=80)
    for axis, (title, lines) in zip(axes.flat, _panels(watched), strict=True):
        axis.set_title(title)
        axis.set_xlabel("seconds")
        for label, at, values in lines:
            axis.plot(at, values, label=label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.savefig(path)
    pyplot.close(figure)


Line = tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]


def _panels(watched: Watched) -> Iterator[tuple[str, list[Line]]]:
    at = np.array(watched.seconds)

    def now(name: str, **labels: str) -> npt.NDArray[np.float64]:
        return np.array(watched.series(name, **labels))

    def rate(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return (values[WINDOW:] - values[:-WINDOW]) / (at[WINDOW:] - at[:-WINDOW])

    def rates(name: str, label: str, **fixed: str) -> list[Line]:
        words = sorted(
            {dict(labels)[label] for samples in watched.metrics for found, labels in samples if found == name}
        )
        return [(word, at[WINDOW:], rate(now(name, **{label: word}, **fixed))) for word in words]

    yield "Constrained outputs a second, by outcome", rates("infernix_requests_total", "outcome")
    yield "Grammars of the engine core a second", rates("infernix_prepare_seconds_count", "cache", process="engine")
    yield "Refused with HTTP 400, a second", rates("infernix_refusals_total", "error")
    positions = rate(now("infernix_mask_positions_total"))
    seconds = [
        (label, at[WINDOW:], 1e6 * rate(now(name)) / np.maximum(positions, 1e-9))
        for label, name in (
            ("masks and lookahead", "infernix_mask_seconds_total"),
            ("commits", "infernix_accept_seconds_total"),
        )
    ]
    yield "Microseconds for each mask position", seconds
    caches = [
        (label, at, now(name) / MIB)
        for label, name in (
            ("engine core", "infernix_engine_cache_bytes"),
            ("API server", "infernix_api_cache_bytes"),
        )
    ]
    yield "Compiled grammars, MiB", caches
    yield "Memory of all processes, MiB", [("resident", at, np.array(watched.resident) / MIB)]
