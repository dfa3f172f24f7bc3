"""The panels of a Grafana dashboard over samples of ``/metrics``: what its own queries say of them.

Reads the part of PromQL that ``docs/grafana-dashboard.json`` uses: selectors with ``=`` and ``=~``, ``rate``, ``sum``
with ``by``, ``histogram_quantile`` and a quotient. A rate is that between the first and the last sample of its window,
without Prometheus' extrapolation to the window's edges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.server_watch import Samples

Values = npt.NDArray[np.float64]
"""float64[samples]; NaN where there is no value."""
Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, Values]

_TOKENS = re.compile(r"\s*([A-Za-z_:][\w:]*|\$\w+|[0-9.]+|\"[^\"]*\"|=~|[=(){}\[\],/])")


@dataclass(frozen=True)
class Panel:
    """One panel: its title, the unit of its values, and its queries with the patterns of their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def panels(dashboard: Path) -> list[Panel]:
    """Return the panels of a dashboard's JSON, in their order."""
    return [
        Panel(
            panel["title"],
            panel["fieldConfig"]["defaults"]["unit"],
            tuple((target["expr"], target["legendFormat"]) for target in panel["targets"]),
        )
        for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
    ]


class History:
    """Samples of ``/metrics`` with their times, and queries over them."""

    def __init__(self, seconds: Sequence[float], samples: Sequence[Samples], window: float) -> None:
        """Take samples; ``window`` is what ``$__rate_interval`` means, in seconds."""
        self.seconds = np.array(seconds, dtype=float)
        self._samples = samples
        self._window = window

    def series(self, query: str, legend: str) -> dict[str, Values]:
        """Return the lines of a query by their legends.

        Raises:
            ValueError: the query uses what this reader does not know.
        """
        reader = _Reader(query, self)
        vector = reader.quotient()
        reader.end()

        def name(labels: Labels) -> str:
            return re.sub(r"{{(\w+)}}", lambda found: dict(labels).get(found[1], ""), legend)

        return {name(labels): values for labels, values in sorted(vector.items())}

    def select(self, name: str, conditions: Sequence[tuple[str, str, str]]) -> Vector:
        """Return the samples of a metric whose labels meet all conditions, each a label, an operator and a value."""

        def meets(labels: Labels) -> bool:
            found = dict(labels)
            return all(
                re.fullmatch(value, found.get(label, "")) is not None
                if operator == "=~"
                else found.get(label, "") == value
                for label, operator, value in conditions
            )

        wanted = {labels for sample in self._samples for found, labels in sample if found == name and meets(labels)}
        return {labels: np.array([sample.get((name, labels), np.nan) for sample in self._samples]) for labels in wanted}

    def rate(self, vector: Vector) -> Vector:
        """Return the growth of counters a second, over the window that ends with each sample."""
        return {labels: self._growth(values) for labels, values in vector.items()}

    def _growth(self, values: Values) -> Values:
        grown = np.full(len(values), np.nan)
        for last in range(len(values)):
            inside = (self.seconds > self.seconds[last] - self._window) & ~np.isnan(values)
            inside[last + 1 :] = False
            (places,) = np.nonzero(inside)
            if len(places) > 1 and places[-1] == last:
                first = places[0]
                grown[last] = (values[last] - values[first]) / (self.seconds[last] - self.seconds[first])
        return grown


class _Reader:
    """Reads one query from left to right and computes it on the way."""

    def __init__(self, query: str, history: History) -> None:
        self._query = query
        self._tokens = list(_tokens(query))
        self._history = history

    def quotient(self) -> Vector:
        found = self._term()
        if self._next() != "/":
            return found
        self._take("/")
        below = self._term()
        with np.errstate(divide="ignore", invalid="ignore"):
            return {labels: values / below[labels] for labels, values in found.items() if labels in below}

    def end(self) -> None:
        if self._tokens:
            raise ValueError(f"what is {self._tokens[0]!r} in {self._query}?")

    def _term(self) -> Vector:
        match name := self._tokens.pop(0):
            case "sum":
                return self._sum()
            case "rate":
                self._take("(")
                vector = self._history.rate(self._selector(self._tokens.pop(0)))
                self._take("[", "$__rate_interval", "]", ")")
                return vector
            case "histogram_quantile":
                self._take("(")
                share = float(self._tokens.pop(0))
                self._take(",")
                buckets = self._term()
                self._take(")")
                return _quantile(share, buckets)
        return self._selector(name)

    def _sum(self) -> Vector:
        kept: list[str] = []
        if self._next() == "by":
            self._take("by", "(")
            while (token := self._tokens.pop(0)) != ")":
                kept += [token] if token != "," else []
        self._take("(")
        vector = self._term()
        self._take(")")
        groups: dict[Labels, list[Values]] = {}
        for labels, values in vector.items():
            groups.setdefault(tuple(pair for pair in labels if pair[0] in kept), []).append(values)
        return {labels: _sum(several) for labels, several in groups.items()}

    def _selector(self, name: str) -> Vector:
        conditions = []
        if self._next() == "{":
            self._take("{")
            while self._next() != "}":
                label, operator, value = self._tokens[:3]
                del self._tokens[:3]
                conditions.append((label, operator, value.strip('"')))
                if self._next() == ",":
                    self._take(",")
            self._take("}")
        return self._history.select(name, conditions)

    def _next(self) -> str | None:
        return self._tokens[0] if self._tokens else None

    def _take(self, *expected: str) -> None:
        for token in expected:
            if self._next() != token:
                raise ValueError(f"{token!r} is missing before {self._next()!r} in {self._query}")
            self._tokens.pop(0)


def _tokens(query: str) -> Iterator[str]:
    at = 0
    while at < len(query.rstrip()):
        found = _TOKENS.match(query, at)
        if found is None:
            raise ValueError(f"what is {query[at:]!r} in {query}?")
        yield found[1]
        at = found.end()


def _sum(several: Sequence[Values]) -> Values:
    """Add up what is there; NaN where nothing is."""
    stacked = np.array(several)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _quantile(share: float, buckets: Vector) -> Vector:
    """Return the quantile of histograms, linear inside a bucket; of the last one, its lower bound."""
    histograms: dict[Labels, dict[float, Values]] = {}
    for labels, counts in buckets.items():
        others = tuple(pair for pair in labels if pair[0] != "le")
        histograms.setdefault(others, {})[float(dict(labels)["le"])] = counts
    return {labels: _of_histogram(share, histogram) for labels, histogram in histograms.items()}


def _of_histogram(share: float, histogram: dict[float, Values]) -> Values:
    bounds = sorted(histogram)
    counts = np.array([histogram[bound] for bound in bounds])
    found = np.full(counts.shape[1], np.nan)
    for sample, column in enumerate(counts.T):
        if np.isnan(column).any() or column[-1] <= 0:
            continue
        rank = share * column[-1]
        bucket = int(np.searchsorted(column, rank))
        low, below = (bounds[bucket - 1], column[bucket - 1]) if bucket else (0.0, 0.0)
        if np.isinf(bounds[bucket]):
            found[sample] = low
        else:
            found[sample] = low + (bounds[bucket] - low) * (rank - below) / (column[bucket] - below)
    return found
