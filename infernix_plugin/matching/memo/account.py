"""Whether it pays to follow the texts of a grammar.

To follow a text costs time, which is lost if nothing comes back to the same place. But most texts do so themselves:
a string is in the same place after every token of its own, an array after every item. So all are followed, and a
grammar may cost no more than it has saved, but for an allowance. Amounts are about microseconds.
"""

from __future__ import annotations

FEW = 1
"""So many matchers of a grammar are never followed: the one that finds the first mask."""
ALLOWANCE = 4000
"""What a grammar may cost before it has saved anything."""
MOST = 1 << 14
"""Most of what was saved that may be lost again."""
PER_MATCHER = 512
"""What every new matcher adds, up to the allowance."""
PER_HIT = 10
"""What a mask that is known saves: an engine takes 3 to 30 us for it and the token behind it."""
PER_MISS = 8
"""What it takes to keep a mask."""


class Account:
    """What a grammar has saved and cost. Threads may lose each other's entries, which is of no consequence."""

    __slots__ = ("_charged", "_matchers", "credit")

    def __init__(self) -> None:
        self.credit = ALLOWANCE
        self._charged = 0
        self._matchers = 0

    def enter_matcher(self) -> bool:
        """Enter a new matcher; whether it may follow its text, if there are more than a few when that begins."""
        self._matchers += 1
        if self.credit < ALLOWANCE:
            self.credit += PER_MATCHER
        return self.credit >= 0

    def used_again(self) -> bool:
        """Whether there were more than a few matchers."""
        return self._matchers > FEW

    def affords_miss(self, work: int) -> bool:
        """Enter a mask that was not known, and ``work``, all that finding places has cost so far; whether to go on."""
        self.credit = min(self.credit, MOST) - PER_MISS - (work - self._charged)
        self._charged = work
        return self.credit >= 0

    def hit(self) -> None:
        """Enter a mask that was known."""
        self.credit += PER_HIT
