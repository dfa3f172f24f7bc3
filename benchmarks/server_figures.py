"""Every panel of the dashboard over the metrics that a :class:`~benchmarks.server_watch.ServerWatch` sampled.

Below them, the memory of the processes, which is no metric.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.dashboard import History, panels
from benchmarks.server_watch import MIB, Watched

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHBOARD = Path(__file__).parents[1] / "docs" / "grafana-dashboard.json"
WINDOW = 20.0
"""Seconds over which a rate is taken."""
COLUMNS = 3
UNITS = {
    "reqps": ("a second", 1.0),
    "s": ("milliseconds", 1e3),
    "percentunit": ("percent", 100.0),
    "Bps": ("MiB a second", 1 / MIB),
    "bytes": ("MiB", 1 / MIB),
    "short": ("", 1.0),
}
"""Grafana's units: what stands beside the axis, and the factor of the values."""


def draw(watched: Watched, path: Path) -> None:
    """Draw the panels into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    history = History(watched.seconds, watched.metrics, WINDOW)
    shown = panels(DASHBOARD)
    rows = -(-len(shown) // COLUMNS) + 1
    figure = pyplot.figure(figsize=(17, 3.6 * rows), layout="constrained", dpi=75)
    grid = figure.add_gridspec(rows, COLUMNS)
    for place, panel in enumerate(shown):
        axis = figure.add_subplot(grid[place // COLUMNS, place % COLUMNS])
        unit, factor = UNITS[panel.unit]
        lines = {
            name: values for query, legend in panel.queries for name, values in history.series(query, legend).items()
        }
        for name, values in lines.items():
            axis.plot(history.seconds, values * factor, label=name, linewidth=1.2)
        _finish(axis, panel.title, unit, history.seconds[-1])
    axis = figure.add_subplot(grid[rows - 1, :])
    for name in sorted(watched.parts[-1]):
        sizes = np.array([part.get(name, np.nan) for part in watched.parts]) / MIB
        axis.plot(history.seconds, sizes, label=name)
    _finish(axis, "Resident memory of the processes (not on the dashboard)", "MiB", history.seconds[-1])
    axis.set_xlabel("seconds since the start of the load")
    figure.savefig(path)
    pyplot.close(figure)


def _finish(axis: Axes, title: str, unit: str, seconds: float) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_ylabel(unit)
    axis.set_xlim(0, seconds)
    highest = np.nanmax([1e-9, *(np.nanmax(line.get_ydata(), initial=0.0) for line in axis.get_lines())])
    axis.set_ylim(-0.02 * highest, 1.35 * highest)  # room for the legend, and zero off the frame
    axis.grid(alpha=0.3)
    if axis.get_lines():
        axis.legend(fontsize=8, ncols=3, loc="upper left")
    else:
        axis.text(0.5, 0.5, "nothing", transform=axis.transAxes, ha="center", color="grey")
