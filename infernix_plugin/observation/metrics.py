"""The Prometheus metrics, in the process that serves ``/metrics``.

With several API servers vLLM sets ``PROMETHEUS_MULTIPROC_DIR`` before they start, and a scrape adds up what each
of them counted. So the objects are made on first use, in the process that counts, and none needs a callback.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from infernix_plugin import errors
from infernix_plugin.errors import ConstraintError
from infernix_plugin.matching.cache import CacheStats
from infernix_plugin.matching.cache import Outcome as CacheOutcome
from infernix_plugin.observation.outcome import KINDS, OTHER, Outcome, kind_label
from infernix_plugin.structured_output.record import EngineFigures, Record

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LABELS: dict[str, tuple[str, ...]] = {
    "kind": (*KINDS, OTHER),
    "outcome": tuple(outcome.value for outcome in Outcome),
    "cache": tuple(outcome.value for outcome in CacheOutcome),
    "process": ("api", "engine"),
    "error": tuple(
        sorted(
            name
            for name, value in vars(errors).items()
            if isinstance(value, type) and issubclass(value, ConstraintError)
        )
    ),
}
"""Every label and the values it may have; ``engine`` is the number of an engine."""


class Metrics:
    """All metrics of this plugin."""

    def __init__(self) -> None:
        self.requests = Counter("infernix_requests", "Constrained outputs that ended.", ["kind", "outcome"])
        self.refusals = Counter("infernix_refusals", "Constraints refused with HTTP 400.", ["error"])
        self.prepare = Histogram(
            "infernix_prepare_seconds",
            "Time to get the compiled grammar of a request: built, from the cache, or waited for.",
            ["process", "cache"],
            buckets=SECONDS,
        )
        self.mask_seconds = Counter("infernix_mask_seconds", "Engine core time in masks and lookahead.", ["kind"])
        self.accept_seconds = Counter("infernix_accept_seconds", "Engine core time in commits.", ["kind"])
        self.mask_positions = Counter("infernix_mask_positions", "Positions whose mask was computed.", ["kind"])
        self.mask_bytes = Counter("infernix_mask_bytes", "Bytes of masks handed to the workers.", ["kind"])
        self.illegal_drafts = Counter("infernix_illegal_drafts", "Lookaheads that met an illegal draft.", ["kind"])
        self.engine_cache_bytes = Gauge(
            "infernix_engine_cache_bytes",
            "Compiled grammars in an engine core, when its latest constrained request ended.",
            ["engine"],
            multiprocess_mode="mostrecent",
        )
        self.engine_compile_queue = Gauge(
            "infernix_engine_compile_queue",
            "Grammars that an engine core compiles or will, when its latest constrained request ended.",
            ["engine"],
            multiprocess_mode="mostrecent",
        )
        self.api_cache_bytes = Gauge(
            "infernix_api_cache_bytes", "Compiled grammars in the API servers.", multiprocess_mode="livesum"
        )
        self.api_compile_queue = Gauge(
            "infernix_api_compile_queue",
            "Constraints that the API servers are judging.",
            multiprocess_mode="livesum",
        )

    def count(self, record: Record, outcome: Outcome, figures: EngineFigures | None) -> None:
        """Count an output that ended."""
        kind = kind_label(record)
        self.requests.labels(kind, outcome).inc()
        if record["cache"] in LABELS["cache"]:
            self.prepare.labels("engine", record["cache"]).observe(record["prepare_ms"] / 1000)
        self.mask_seconds.labels(kind).inc(record["mask_ms"] / 1000)
        self.accept_seconds.labels(kind).inc(record["accept_ms"] / 1000)
        self.mask_positions.labels(kind).inc(record["mask_positions"])
        self.mask_bytes.labels(kind).inc(record["mask_bytes"])
        self.illegal_drafts.labels(kind).inc(record["illegal_drafts"])
        if figures is not None:
            self.engine_cache_bytes.labels(str(figures["index"])).set(figures["cache_bytes"])
            self.engine_compile_queue.labels(str(figures["index"])).set(figures["compiling"])

    def count_refusal(self, error: ConstraintError) -> None:
        """Count a constraint that was refused before anything was generated."""
        name = type(error).__name__
        self.refusals.labels(name if name in LABELS["error"] else ConstraintError.__name__).inc()

    def count_judged(self, cache: CacheOutcome, seconds: float, stats: CacheStats) -> None:
        """Count a constraint that this API server compiled, or found in its cache."""
        self.prepare.labels("api", cache.value).observe(seconds)
        self.api_cache_bytes.set(stats.bytes)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Count a constraint as being judged for as long as the body runs."""
        with self.api_compile_queue.track_inprogress():
            yield


_lock = threading.Lock()


@cache
def _made() -> Metrics:
    return Metrics()


def metrics() -> Metrics:
    """Return this process's metrics, which are made now if there are none: once, whichever threads ask first."""
    with _lock:
        return _made()
