"""Which given values, of a ``const`` or ``enum``, satisfy what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.json_schema.derivatives import Intersection
from infernix_plugin.grammar.json_schema.json_value import Json, identity, kind_of
from infernix_plugin.grammar.json_schema.shape import (
    Arrays,
    Boolean,
    Branch,
    Count,
    Finite,
    Goal,
    Inexpressible,
    Null,
    Numbers,
    Objects,
    Shape,
    Some,
    Strings,
)
from infernix_plugin.grammar.json_schema.strings import language


class Shapes(Protocol):
    """What is known of goals."""

    def shape(self, goal: Goal) -> Shape:
        """What satisfies every schema of the goal."""

    def member(self, branch: Objects, name: str) -> Goal:
        """What the value of the member ``name`` must satisfy."""


class Membership:
    """Judges values by shapes."""

    def __init__(self, shapes: Shapes, most_states: int) -> None:
        """Judge by ``shapes``; the automaton of one string has at most so many states."""
        self._shapes = shapes
        self._most_states = most_states
        self._matchers: dict[Strings, Intersection] = {}

    def values(self, branch: Finite) -> tuple[Json, ...]:
        """The listed values that satisfy the branch's other assertions."""
        return tuple([value for value in branch.listing.values if self._satisfies(branch.given, value)])

    def _satisfies(self, given: Sequence[Branch], value: Json) -> bool:
        budget.checkpoint()
        return all(self._accepts(branch, value) for branch in budget.watched(given))

    def listed(self, goal: Goal) -> list[Json] | None:
        """The values that satisfy the goal, if they are listed in the schema."""
        found: list[Json] = []
        for branch in self._shapes.shape(goal):
            match branch:
                case Finite():
                    found.extend(self.values(branch))
                case Boolean():
                    found.extend([True, False])
                case Null():
                    found.append(None)
                case _:
                    return None
        return found

    def accepts(self, goal: Goal, value: Json) -> bool:
        """Whether a value of the same types as the reader's satisfies the goal."""
        budget.checkpoint()
        shape = self._shapes.shape(goal)
        for branch in shape:  # noqa: SIM110  a generator would take as much stack again, at every level of the value
            if self._accepts(branch, value):
                return True
        return False

    def _contains(self, value: dict[str, Json], some: Some) -> bool:
        parts = [name if some.is_about_names else item for name, item in value.items() if some.applies(name)]
        return any(self.accepts((some.place,), part) for part in parts)

    def _matches(self, branch: Strings, value: str) -> bool:
        if not branch.patterns and value.isascii():
            return _counted(len(value), branch)
        if branch not in self._matchers:
            self._matchers[branch] = Intersection([language(branch)], most_states=self._most_states)
        return value in self._matchers[branch]

    def _accepts(self, branch: Branch, value: Json) -> bool:
        match branch:
            case Inexpressible(kind, other=other):
                if kind_of(value) != kind or self._accepts(other, value):
                    return False
                return all(self._accepts(given, value) for given in branch.given)
            case Null():
                return value is None
            case Boolean():
                return isinstance(value, bool)
            case Numbers():
                return not isinstance(value, str | bool | list | dict) and value is not None and value.value in branch
            case Strings():
                return isinstance(value, str) and _counted(len(value), branch) and self._matches(branch, value)
            case Finite():
                # The listed values come first: the checks then only ever go into parts of one value.
                return value in branch.listing and all(self._accepts(given, value) for given in branch.given)
            case Arrays():
                if not isinstance(value, list) or not _counted(len(value), branch):
                    return False
                if branch.unique and len(set(map(identity, value))) < len(value):
                    return False
                for index, item in enumerate(value):
                    if not self.accepts(branch.item(index), item):
                        return False
                for count in branch.counts:
                    found = [item for item in value[count.start :] if self.accepts((count.place,), item)]
                    if not _counted(len(found), count):
                        return False
                return True
            case Objects():
                if not isinstance(value, dict) or not value.keys() >= set(branch.required):
                    return False
                if not _counted(len(value), branch):
                    return False
                for name, item in value.items():
                    if not self.accepts(self._shapes.member(branch, name), item):
                        return False
                return all(self._contains(value, some) for some in branch.some)


def _counted(length: int, bounds: Strings | Arrays | Objects | Count) -> bool:
    return bounds.minimum <= length and (bounds.maximum is None or length <= bounds.maximum)
