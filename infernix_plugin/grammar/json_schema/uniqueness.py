"""The places of a schema whose arrays must not repeat an item, for the companion that enforces it.

Places are sets of goals: what may hold for the value there, given only the names and positions that lead to it. So
two branches of an ``anyOf`` share a place, and have to agree on whether its items are unique.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from infernix_plugin.errors import ConstraintTooLarge, UnsupportedSchema
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.json_schema.json_value import ROOT, Json
from infernix_plugin.grammar.json_schema.reducer import Reducer
from infernix_plugin.grammar.json_schema.shape import (
    KINDS,
    Arrays,
    Branch,
    Finite,
    Goal,
    Objects,
    Shape,
    join,
    negated,
    pointer_of,
)
from infernix_plugin.grammar.json_schema.supply import ENDLESS, exact_supply, reading, roomy, supply
from infernix_plugin.grammar.places import UNWATCHED, Place

MAX_PLACES = 1 << 14
"""Most places of one schema."""
MAX_COUNTS = 3
"""Most ``contains`` of one array in a schema with watched places."""

_Key = frozenset[Goal]


def watched_places(reducer: Reducer, watched: Callable[[Arrays], bool]) -> tuple[Place, ...]:
    """The places of a document, in which the arrays that are ``watched`` must not repeat an item.

    Raises:
        UnsupportedSchema: in one place an array may repeat items under one alternative and not under another.
        ConstraintTooLarge: more than :data:`MAX_PLACES`.
    """
    return _Survey(reducer, watched).places()


def has_supply(reducer: Reducer, branch: Arrays, goal: Goal) -> bool:
    """Whether there are different items enough for an array of the least length.

    If at every position that must be filled there are more values than positions before it, some value is always
    left, whatever was chosen before.

    Raises:
        UnsupportedSchema: neither that nor the opposite could be shown, so writing it could get stuck.
    """
    exact = None if branch.positions else exact_supply(reducer, branch.item(0))
    if exact is not None:
        return exact >= branch.minimum
    for index in range(min(branch.minimum, branch.positions + 1)):
        needed = index + 1 if index < branch.positions else branch.minimum
        if needed > 1 and supply(reducer, branch.item(index), needed) < needed:
            raise UnsupportedSchema(
                f"uniqueItems with minItems {branch.minimum} is not supported where an item may have fewer values",
                location=pointer_of(goal),
                hint="lower minItems, or let the items have more values",
            )
    return True


class _Survey:
    def __init__(self, reducer: Reducer, watched: Callable[[Arrays], bool]) -> None:
        self._reducer = reducer
        self._watched = watched
        self._indices: dict[_Key, int] = {}
        self._pending: deque[_Key] = deque()

    def places(self) -> tuple[Place, ...]:
        found: list[tuple[_Key, Place]] = []
        self._index([(ROOT,)])
        while self._pending:
            budget.checkpoint()
            key = self._pending.popleft()
            found.append((key, self._place(key)))
        kept = _leading([place for _, place in found])
        for index in kept:
            self._refuse_repeated_lists(found[index][0])
        renamed = {index: position for position, index in enumerate(kept)}
        return tuple(_renamed(found[index][1], renamed) for index in kept)

    def _index(self, goals: Iterable[Goal]) -> int:
        key = frozenset(goals)
        if not key or key == {()}:
            return UNWATCHED
        if key not in self._indices:
            if len(self._indices) >= MAX_PLACES:
                raise ConstraintTooLarge(f"uniqueItems: the schema tells more than {MAX_PLACES} places apart")
            self._indices[key] = len(self._indices)
            self._pending.append(key)
        return self._indices[key]

    def _place(self, key: _Key) -> Place:
        shapes = {goal: _absorbed(self._reducer.shape(goal)) for goal in sorted(key)}
        branches = [branch for shape in shapes.values() for branch in shape]
        arrays = [branch for branch in branches if isinstance(branch, Arrays)]
        objects = [case for branch in branches if isinstance(branch, Objects) for case in self._cases(branch)]
        unique = any(map(self._watched, arrays))
        if unique and any(not branch.unique and branch.maximum not in (0, 1) for branch in arrays):
            raise UnsupportedSchema(
                "uniqueItems is not supported where another alternative lets the items of an array be equal",
                location=pointer_of(next(goal for goal, shape in shapes.items() if any(map(_is_unique, shape)))),
                hint="demand uniqueItems under every alternative that allows an array here",
            )
        positions = max((branch.positions for branch in arrays), default=0)
        names = dict.fromkeys(name for branch in objects for name in branch.names)
        place = Place(
            positions=tuple(self._index(self._items(arrays, index)) for index in range(positions)),
            rest=self._index(self._items(arrays, positions)),
            members={name: self._index(self._reducer.member(one, name) for one in objects) for name in names},
            undeclared=self._index(goal for one in objects for goal in self._undeclared(one)),
        )
        return self._with_items(place, branches, arrays) if unique else place

    def _with_items(self, place: Place, branches: list[Branch], arrays: list[Arrays]) -> Place:
        """The place with what is known of the items of its unique arrays."""
        goals = [
            branch.item(index)
            for branch in arrays
            for index in range(branch.positions + 1)
            if branch.maximum is None or index < branch.maximum
        ]
        items = [branch for goal in goals for branch in self._reducer.shape(goal)]
        cramped = {branch.kind for branch in items if not roomy(self._reducer, branch)}
        enough = max(ENDLESS if branch.maximum is None else branch.maximum + 1 for branch in arrays)
        exact = exact_supply(self._reducer, goals[0]) if len(goals) == 1 and _is_only_array(branches) else None
        return replace(
            place,
            unique=True,
            supply=min(supply(self._reducer, goal, min(enough, ENDLESS)) for goal in goals) if exact is None else exact,
            exact=exact is not None,
            roomy=frozenset(KINDS) - cramped,
        )

    def _cases(self, branch: Objects) -> Iterator[Objects]:
        cases = self._reducer.witnesses(branch) if branch.some else (branch,)
        return (case for case in cases if isinstance(case, Objects))

    def _items(self, arrays: list[Arrays], index: int) -> Iterator[Goal]:
        """All that may be asked of an item, with what ``contains`` adds."""
        for branch in arrays:
            if len(branch.counts) > MAX_COUNTS:
                raise UnsupportedSchema(
                    f"uniqueItems is not supported beside more than {MAX_COUNTS} contains of one array",
                    location=pointer_of((branch.counts[0].place,)),
                )
            goals = [branch.item(index)]
            for count in branch.counts:
                goals += [join(goal, (place,)) for goal in goals for place in (count.place, negated(count.place))]
            yield from goals

    def _undeclared(self, branch: Objects) -> Iterator[Goal]:
        for somes in ((), branch.last) if branch.last else ((),):
            for _, goal in self._reducer.undeclared(branch, somes):
                yield goal

    def _refuse_repeated_lists(self, key: _Key) -> None:
        """A listed value is written as it is; below a watched place no array in it may repeat an item."""
        for goal in sorted(key):
            for branch in self._reducer.shape(goal):
                if isinstance(branch, Finite) and any(map(_repeats, self._reducer.membership.values(branch))):
                    raise UnsupportedSchema(
                        "uniqueItems is not supported beside a listed value that has an array with equal items",
                        location=pointer_of(goal),
                        hint="take the value out of the list, or drop uniqueItems",
                    )


def _absorbed(shape: Shape) -> Shape:
    """The shape without arrays of unique items that another branch allows anyway."""
    free = {branch for branch in shape if isinstance(branch, Arrays) and not branch.unique}
    return tuple(
        branch
        for branch in shape
        if not (isinstance(branch, Arrays) and branch.unique and replace(branch, unique=False) in free)
    )


def _is_unique(branch: Branch) -> bool:
    return isinstance(branch, Arrays) and branch.unique


def _is_only_array(branches: list[Branch]) -> bool:
    return sum(branch.kind == "array" for branch in branches) == 1


def _repeats(value: Json) -> bool:
    """Whether some array in the value has two equal items."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            if len(set(map(reading, part))) < len(part):
                return True
            pending.extend(part)
        elif isinstance(part, dict):
            pending.extend(part.values())
    return False


def _parts(place: Place) -> Iterator[int]:
    yield from place.positions
    yield place.rest
    yield from place.members.values()
    yield place.undeclared


def _leading(places: list[Place]) -> list[int]:
    """The places, in order, from which a unique one can be reached."""
    above: dict[int, list[int]] = {}
    for index, place in enumerate(places):
        for part in _parts(place):
            above.setdefault(part, []).append(index)
    pending = [index for index, place in enumerate(places) if place.unique]
    kept = set(pending)
    while pending:
        for index in above.get(pending.pop(), ()):
            if index not in kept:
                kept.add(index)
                pending.append(index)
    return sorted(kept)


def _renamed(place: Place, names: dict[int, int]) -> Place:
    return replace(
        place,
        positions=tuple(names.get(part, UNWATCHED) for part in place.positions),
        rest=names.get(place.rest, UNWATCHED),
        members={name: names.get(part, UNWATCHED) for name, part in place.members.items()},
        undeclared=names.get(place.undeclared, UNWATCHED),
    )
