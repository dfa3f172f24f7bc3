"""How much all machines together may remember."""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    """Something that remembers ``bytes`` bytes and can forget them.

    Attributes:
        bytes: what it remembers.
        spent_at: what :attr:`Memory.ever_spent` was when it last remembered something more.
    """

    bytes: int
    spent_at: int

    def forget(self) -> None:
        """Forget everything; ``bytes`` is then 0."""


class Memory:
    """A budget in bytes; thread-safe. Past it, members forget everything, those first that have long learnt nothing.

    Only so many do that a quarter of the budget is free again: to forget all at once would take the time of thousands
    of masks, in the middle of one.

    Attributes:
        ever_spent: the bytes that were ever added, which tell the time here.
    """

    def __init__(self, budget: int) -> None:
        """Allow ``budget`` bytes."""
        self._budget = budget
        self._members: WeakSet[Forgetful] = WeakSet()
        self._lock = threading.Lock()
        self._spent = self.ever_spent = 0

    def watch(self, member: Forgetful) -> None:
        """Count what ``member`` remembers for as long as it lives."""
        with self._lock:
            self._members.add(member)

    def spend(self, size: int) -> None:
        """Count ``size`` bytes that a member has added to its own count."""
        self.ever_spent += size
        self._spent += size
        if self._spent > self._budget:
            self._spent = self.bytes()  # without those that are gone
            if self._spent > self._budget:
                self._free(self._budget - self._budget // 4)

    def bytes(self) -> int:
        """What is remembered now."""
        return sum(member.bytes for member in self._present())

    def _free(self, most: int) -> None:
        """Let members forget until no more than ``most`` bytes are left."""
        for member in sorted(self._present(), key=lambda member: member.spent_at):
            if self._spent <= most:
                break
            self._spent -= member.bytes
            member.forget()

    def _present(self) -> list[Forgetful]:
        with self._lock:  # another thread may be adding one
            return list(self._members)
