"""The normal form of a schema: a union of branches, each about one JSON type, closed under intersection.

A branch states everything it demands of its own values and names what it demands of the values inside them only by
*goal*: the places in the document whose schemas must hold together. So intersecting two branches never looks
inside them, recursion stays a reference, and there are finitely many goals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import Node
from infernix_plugin.grammar.json_schema.derivatives import Intersection
from infernix_plugin.grammar.json_schema.json_value import ROOT, Json, identity

Goal = tuple[str, ...]
"""Pointers of schemas that hold together; the empty goal demands nothing."""

FALSE = "false"
"""The place whose schema nothing satisfies."""

_NOT = "!"
_EITHER = "|"

KINDS = ("object", "array", "string", "number", "boolean", "null")


def negated(place: str) -> str:
    """The place whose schema holds where the schema at ``place`` does not."""
    return place[1:] if place[0] == _NOT else _NOT + place


def is_negated(place: str) -> bool:
    """Whether ``place`` was made by :func:`negated`."""
    return place.startswith(_NOT)


def either(*places: str) -> str:
    """The place whose schema holds where that of at least one of the places does."""
    return places[0] if len(places) == 1 else _EITHER + json.dumps(places)


def alternatives(place: str) -> Goal:
    """The places that ``place`` was made of by :func:`either`, or none."""
    return tuple(json.loads(place.removeprefix(_EITHER))) if place.startswith(_EITHER) else ()


@contextmanager
def located(goal: Goal) -> Iterator[None]:
    """Give an error that has no place that of the goal; a time-out means the whole document."""
    try:
        yield
    except ConstraintError as error:
        if error.location is None and not isinstance(error, budget.CompileTimeout):
            error.location = pointer_of(goal)
        raise


def pointer_of(goal: Goal) -> str:
    """The place in the document to blame when a goal cannot be met."""
    places = (place.removeprefix(_NOT) for place in reversed(goal))
    place = next((place for place in places if place != FALSE), ROOT)
    parts = alternatives(place)
    return pointer_of(parts[:1]) if parts else place[place.index(ROOT) :]


def _contradict(goals: Iterable[Goal]) -> bool:
    """Whether it is plain that nothing satisfies all the goals."""
    seen = set[str]()
    for goal in goals:
        for place in goal:
            if place == FALSE or negated(place) in seen:
                return True
            seen.add(place)
    return False


def join(*goals: Goal) -> Goal:
    """The conjunction of goals."""
    return tuple(dict.fromkeys(pointer for goal in goals for pointer in goal))


@dataclass(frozen=True, slots=True)
class Null:
    """The value ``null``."""

    kind: ClassVar[str] = "null"


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` and ``false``."""

    kind: ClassVar[str] = "boolean"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval of numbers."""

    value: Fraction
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of an interval; only those without a fraction when ``integer``.

    They are multiples of all of ``multiples`` and of none of ``others``, which are positive.
    """

    kind: ClassVar[str] = "number"
    integer: bool = False
    lower: Bound | None = None
    upper: Bound | None = None
    multiples: frozenset[Fraction] = frozenset()
    others: frozenset[Fraction] = frozenset()

    @property
    def integers(self) -> tuple[int | None, int | None]:
        """The interval of the integers in it, both ends included."""
        low = high = None
        if self.lower:
            low = math.floor(self.lower.value) + 1 if self.lower.exclusive else math.ceil(self.lower.value)
        if self.upper:
            high = math.ceil(self.upper.value) - 1 if self.upper.exclusive else math.floor(self.upper.value)
        return low, high

    @property
    def empty(self) -> bool:
        """Plainly no number at all is inside."""
        steps = [*self.multiples, Fraction(1)] if self.integer else [*self.multiples]
        if any((step / other).denominator == 1 for step in steps for other in self.others):
            return True
        if self.lower is None or self.upper is None:
            return False
        if self.integer:
            low, high = self.integers
            return low is not None and high is not None and low > high
        open_end = self.lower.exclusive or self.upper.exclusive
        return self.lower.value > self.upper.value or (self.lower.value == self.upper.value and open_end)

    def __contains__(self, value: Fraction) -> bool:
        if self.integer and value.denominator != 1:
            return False
        if any((value / step).denominator != 1 for step in self.multiples):
            return False
        if any((value / step).denominator == 1 for step in self.others):
            return False
        return not Numbers(False, self.lower, self.upper).meet(Numbers(lower=Bound(value), upper=Bound(value))).empty

    def meet(self, other: Numbers) -> Numbers:
        """The numbers in both."""
        lowers = [bound for bound in (self.lower, other.lower) if bound]
        uppers = [bound for bound in (self.upper, other.upper) if bound]
        return Numbers(
            self.integer or other.integer,
            max(lowers, key=lambda bound: (bound.value, bound.exclusive), default=None),
            min(uppers, key=lambda bound: (bound.value, not bound.exclusive), default=None),
            self.multiples | other.multiples,
            self.others | other.others,
        )


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular language of decoded strings; two are equal if a keyword of the same name and text made them."""

    source: str
    node: Node = field(compare=False)
    keyword: str = "pattern"

    def __contains__(self, text: str) -> bool:
        return text in _membership(self)


@lru_cache(maxsize=512)
def _membership(pattern: Pattern) -> Intersection:
    return Intersection([pattern.node])


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings by their number of characters and the expressions that must all be found in them."""

    kind: ClassVar[str] = "string"
    minimum: int = 0
    maximum: int | None = None
    patterns: tuple[Pattern, ...] = ()

    @property
    def empty(self) -> bool:
        """The length bounds contradict each other."""
        return self.maximum is not None and self.minimum > self.maximum

    def meet(self, other: Strings) -> Strings:
        """The strings in both."""
        return Strings(
            max(self.minimum, other.minimum),
            _least(self.maximum, other.maximum),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Items:
    """What one schema says about the items of an array: by position, then for all the rest."""

    prefix: tuple[Goal, ...]
    rest: Goal

    def __getitem__(self, index: int) -> Goal:
        return self.prefix[index] if index < len(self.prefix) else self.rest


@dataclass(frozen=True, slots=True)
class Count:
    """So many of an array's items, those before ``start`` left out, satisfy the schema at ``place``."""

    place: str
    start: int = 0
    minimum: int = 1
    maximum: int | None = None

    @property
    def empty(self) -> bool:
        """The bounds contradict each other."""
        return self.maximum is not None and self.minimum > self.maximum


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays by their length, the item schemas that must all hold and those that some items satisfy.

    No two items are equal when ``unique``.
    """

    kind: ClassVar[str] = "array"
    minimum: int = 0
    maximum: int | None = None
    layers: tuple[Items, ...] = ()
    unique: bool = False
    counts: tuple[Count, ...] = ()

    @property
    def empty(self) -> bool:
        """The bounds of the length or of a count contradict each other."""
        least = max([self.minimum, *(count.start + count.minimum for count in self.counts if count.minimum)])
        return (self.maximum is not None and least > self.maximum) or any(count.empty for count in self.counts)

    @property
    def positions(self) -> int:
        """How many leading items may differ from the rest."""
        return max((len(layer.prefix) for layer in self.layers), default=0)

    def item(self, index: int) -> Goal:
        """What the item at ``index`` must satisfy."""
        return join(*(layer[index] for layer in self.layers))

    def meet(self, other: Arrays) -> Arrays:
        """The arrays in both."""
        return Arrays(
            max(self.minimum, other.minimum),
            _least(self.maximum, other.maximum),
            tuple(dict.fromkeys(self.layers + other.layers)),
            self.unique or other.unique,
            _merged(self.counts + other.counts),
        )


def _merged(counts: tuple[Count, ...]) -> tuple[Count, ...]:
    """The counts with those of the same items and the same schema in one."""
    found: dict[tuple[str, int], Count] = {}
    for count in counts:
        known = found.setdefault((count.place, count.start), count)
        bounds = max(known.minimum, count.minimum), _least(known.maximum, count.maximum)
        found[count.place, count.start] = Count(count.place, count.start, *bounds)
    return tuple(found.values())


@dataclass(frozen=True, eq=False, slots=True)
class Members:
    """What one schema says about the members of an object: by name, by patterns of names, then for all other names."""

    fields: Mapping[str, Goal]
    additional: Goal = ()
    patterns: tuple[tuple[Pattern, Goal], ...] = ()

    def __getitem__(self, name: str) -> Goal:
        goals = [self.fields[name]] if name in self.fields else []
        goals += [goal for pattern, goal in self.patterns if name in pattern]
        return join(*goals) if goals else self.additional

    def under(self, matched: Container[Pattern]) -> Goal:
        """What a member must satisfy whose name is not declared and matches these patterns but no others."""
        goals = [goal for pattern, goal in self.patterns if pattern in matched]
        return join(*goals) if goals else self.additional


@dataclass(frozen=True, slots=True)
class Some:
    """At least one member satisfies the schema at ``place`` with its value: one whose name the pattern matches, or one
    that is additional in the layer. With neither, some name satisfies it."""

    place: str
    pattern: Pattern | None = None
    layer: Members | None = None

    @property
    def is_about_names(self) -> bool:
        """Whether it is the name that satisfies the schema."""
        return self.pattern is None and self.layer is None

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns that decide to which names it applies."""
        layered = self.layer.patterns if self.layer else ()
        return (*([self.pattern] if self.pattern else []), *(pattern for pattern, _ in layered))

    def applies(self, name: str) -> bool:
        """Whether a member of this name may be the one."""
        declared = self.layer is not None and name in self.layer.fields
        return not declared and self.applies_under([pattern for pattern in self.patterns if name in pattern])

    def applies_under(self, matched: Container[Pattern]) -> bool:
        """The same for a name that is not declared and matches these patterns but no others."""
        if self.pattern:
            return self.pattern in matched
        return not any(pattern in matched for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects by the names they must have, the number of members, and the member schemas that must all hold.

    A member has to satisfy *every* layer, each with its own ``additional``: a name that one schema declares is not
    thereby let through by another schema that is closed.
    """

    kind: ClassVar[str] = "object"
    layers: tuple[Members, ...] = ()
    required: tuple[str, ...] = ()
    naming: Goal = ()
    """What every name must satisfy, as a string."""
    minimum: int = 0
    maximum: int | None = None
    some: tuple[Some, ...] = ()
    last: tuple[Some, ...] = ()
    """What the last of the undeclared members has to be, all at once. Only there no repetition of its name can take it
    back."""

    @property
    def empty(self) -> bool:
        """Plainly no object fits: the counts contradict each other, or a required member is ruled out."""
        if self.maximum is not None and max(self.minimum, len(self.required)) > self.maximum:
            return True
        return any(_contradict([layer.fields.get(name, ()) for layer in self.layers]) for name in self.required)

    @property
    def names(self) -> tuple[str, ...]:
        """Every declared name in declared order, then the required ones that are not declared."""
        told_apart = [some.layer for some in self._every_some if some.layer]
        layers = [*self.layers, *told_apart]
        return tuple(dict.fromkeys([*(name for layer in layers for name in layer.fields), *self.required]))

    @property
    def _every_some(self) -> tuple[Some, ...]:
        return self.some + self.last

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns that tell undeclared names apart."""
        told_apart = [pattern for some in self._every_some for pattern in some.patterns]
        return tuple(dict.fromkeys([*(pattern for layer in self.layers for pattern, _ in layer.patterns), *told_apart]))

    def member(self, name: str) -> Goal:
        """What the value of the member ``name`` must satisfy."""
        return join(*(layer[name] for layer in self.layers))

    def under(self, matched: Container[Pattern]) -> Goal:
        """What a member must satisfy whose name is not declared and matches these patterns but no others."""
        return join(*(layer.under(matched) for layer in self.layers))

    def meet(self, other: Objects) -> Objects:
        """The objects in both."""
        return Objects(
            tuple(dict.fromkeys(self.layers + other.layers)),
            tuple(dict.fromkeys(self.required + other.required)),
            join(self.naming, other.naming),
            max(self.minimum, other.minimum),
            _least(self.maximum, other.maximum),
            tuple(dict.fromkeys(self.some + other.some)),
            tuple(dict.fromkeys(self.last + other.last)),
        )


class Listing:
    """Values of one type from one ``enum`` or ``const``, in source order."""

    def __init__(self, values: tuple[Json, ...]) -> None:
        self.values = values

    def __contains__(self, value: Json) -> bool:
        return identity(value) in self._identities

    @cached_property
    def _identities(self) -> frozenset[Hashable]:
        return frozenset(map(identity, self.values))


@dataclass(frozen=True, slots=True)
class Finite:
    """Those of some listed values of one type that satisfy the ``given`` branches."""

    kind: str
    listing: Listing
    given: tuple[Branch, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Inexpressible:
    """The values of one type that are not in the ``other`` branch, but in all the ``given`` ones.

    Values can be looked up in it, but not written from it: it is refused only if it turns out that they would be.
    """

    kind: str
    what: str
    location: str
    other: Branch
    given: tuple[Branch, ...] = ()


Branch = Inexpressible | Null | Boolean | Numbers | Strings | Arrays | Objects | Finite
Shape = tuple[Branch, ...]

UNCONSTRAINED: Mapping[str, Branch] = {
    branch.kind: branch for branch in (Objects(), Arrays(), Strings(), Numbers(), Boolean(), Null())
}
ANY: Shape = tuple(UNCONSTRAINED.values())
NOTHING: Shape = ()


def _least(left: int | None, right: int | None) -> int | None:
    return min((bound for bound in (left, right) if bound is not None), default=None)


def meet_branches(left: Branch, right: Branch) -> Branch | None:
    """The values in both branches, or ``None`` when it is plain that there are none."""
    if left.kind != right.kind:
        return None
    if left == right or right == UNCONSTRAINED[right.kind]:
        return left
    if left == UNCONSTRAINED[left.kind]:
        return right
    match left, right:
        case Finite(kind, listing, given), _:
            return Finite(kind, listing, (*given, right))
        case _, Finite(kind, listing, given):
            return Finite(kind, listing, (*given, left))
        case Inexpressible() as one, _:
            return replace(one, given=(*one.given, right))
        case _, Inexpressible() as other:
            return replace(other, given=(*other.given, left))
        case Numbers() as one, Numbers() as other:
            return _unless_empty(one.meet(other))
        case Strings() as one, Strings() as other:
            return _unless_empty(one.meet(other))
        case Arrays() as one, Arrays() as other:
            return _unless_empty(one.meet(other))
        case Objects() as one, Objects() as other:
            return _unless_empty(one.meet(other))
    return left


def _unless_empty(branch: Numbers | Strings | Arrays | Objects) -> Branch | None:
    budget.checkpoint()
    return None if branch.empty else branch


def meet(left: Shape, right: Shape) -> Shape:
    """The values in both shapes."""
    if left == ANY or right == ANY:
        return right if left == ANY else left
    pairs = (meet_branches(one, other) for one in left for other in budget.watched(right) if one.kind == other.kind)
    return unite(branch for branch in pairs if branch is not None)


def unite(branches: Iterable[Branch]) -> Shape:
    """The values in any of the branches; an unconstrained branch swallows the others of its type."""
    found = dict.fromkeys(budget.watched(branches))
    whole = {branch.kind for branch in found if branch == UNCONSTRAINED[branch.kind]}
    return tuple(branch for branch in found if branch.kind not in whole or branch == UNCONSTRAINED[branch.kind])
