"""How much all machines together may remember."""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    """Something that remembers ``bytes`` bytes and can forget them."""

    bytes: int

    def forget(self) -> None:
        """Forget everything; ``bytes`` is then 0."""


class Memory:
    """A budget in bytes; thread-safe. Past it everything is forgotten, which costs no more than finding it again."""

    def __init__(self, budget: int) -> None:
        """Allow ``budget`` bytes."""
        self._budget = budget
        self._members: WeakSet[Forgetful] = WeakSet()
        self._lock = threading.Lock()
        self._spent = 0

    def watch(self, member: Forgetful) -> None:
        """Count what ``member`` remembers for as long as it lives."""
        with self._lock:
            self._members.add(member)

    def spend(self, size: int) -> None:
        """Count ``size`` bytes that a member has added to its own count."""
        self._spent += size
        if self._spent <= self._budget:
            return
        self._spent = self.bytes()  # without those that are gone
        if self._spent > self._budget:
            for member in self._present():
                member.forget()
            self._spent = 0

    def bytes(self) -> int:
        """What is remembered now."""
        return sum(member.bytes for member in self._present())

    def _present(self) -> list[Forgetful]:
        with self._lock:  # another thread may be adding one
            return list(self._members)
