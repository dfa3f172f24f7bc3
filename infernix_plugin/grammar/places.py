"""Where in a JSON text the items of an array must differ: what a companion of the grammar watches.

A *place* stands for every value that is reached from the root by the same names and positions, as far as the schema
tells names and positions apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNWATCHED = -1
"""The place where, and below which, nothing is watched."""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """What holds for the values of one place, and the places of their parts, as indices of ``UniqueItems.places``."""

    unique: bool = False
    """No two items of an array are equal."""
    supply: int = 0
    """At least so many different values may stand at every position of a unique array."""
    exact: bool = False
    """Nothing but ``supply`` values may stand in a unique array, and all of them at every position."""
    roomy: frozenset[str] = frozenset()
    """JSON types whose items, once begun, can always become different from any finite number of others; also those that
    have no items here."""
    positions: tuple[int, ...] = ()
    rest: int = UNWATCHED
    members: Mapping[str, int] = field(default_factory=dict)
    undeclared: int = UNWATCHED

    def item(self, index: int) -> int:
        """The place of an array's item."""
        return self.positions[index] if index < len(self.positions) else self.rest

    def member(self, name: str) -> int:
        """The place of an object's member."""
        return self.members.get(name, self.undeclared)


@dataclass(frozen=True, eq=False, slots=True)
class UniqueItems:
    """The places of a JSON text, the root's first, and where in the output the text begins.

    With ``opening``, the output first holds that token, then ``separator``, and only then the text.
    """

    places: tuple[Place, ...]
    opening: int | None = None
    separator: str = ""
