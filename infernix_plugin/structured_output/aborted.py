"""Constrained requests that were aborted: the engine core makes no output for them, but their record is still due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infernix_plugin.structured_output.record import Record


@dataclass(frozen=True, slots=True)
class Aborted:
    """One aborted request.

    Attributes:
        request_id: the engine core's name of it.
        client: which API process asked for it.
        record: its observation.
    """

    request_id: str
    client: int
    record: Record


class AbortedRequests:
    """Those whose record has not been sent yet. Only the engine core's own thread touches it."""

    def __init__(self) -> None:
        self._waiting: dict[str, Aborted] = {}

    def add(self, aborted: Aborted) -> None:
        """Keep a record until it is taken."""
        self._waiting[aborted.request_id] = aborted

    def take(self, request_ids: Iterable[str] | None = None) -> list[Aborted]:
        """Take the records of some requests, by default of all, away."""
        names = list(self._waiting) if request_ids is None else request_ids
        return [self._waiting.pop(name) for name in names if name in self._waiting]
