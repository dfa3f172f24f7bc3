"""From places in the document to shapes: expand in-place subschemas, distribute unions, intersect, memoise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import Literal, Node, Not, alt
from infernix_plugin.grammar.json_schema import keywords
from infernix_plugin.grammar.json_schema.complement import absorbed, complement, one_member
from infernix_plugin.grammar.json_schema.derivatives import Derivatives, Intersection, Undecided
from infernix_plugin.grammar.json_schema.evaluated import unevaluated
from infernix_plugin.grammar.json_schema.facts import KnownFacts
from infernix_plugin.grammar.json_schema.json_value import Json, identity
from infernix_plugin.grammar.json_schema.keywords import Option, Reading, Union
from infernix_plugin.grammar.json_schema.membership import Membership
from infernix_plugin.grammar.json_schema.reader import Document
from infernix_plugin.grammar.json_schema.shape import (
    ANY,
    FALSE,
    NOTHING,
    UNCONSTRAINED,
    Arrays,
    Branch,
    Count,
    Finite,
    Goal,
    Inexpressible,
    Objects,
    Pattern,
    Shape,
    Some,
    Strings,
    alternatives,
    is_negated,
    join,
    located,
    meet,
    meet_branches,
    negated,
    pointer_of,
    unite,
)
from infernix_plugin.grammar.json_schema.strings import language
from infernix_plugin.grammar.options import GrammarOptions

MAX_WITNESSES = 256
"""Most cases of which member is the one that a negation asks for."""
_PROOF_DEPTH = 16
_WITNESS_DEPTH = 12  # members that cannot exist are left out early, not all of them have to be


_Matched = tuple[tuple[Pattern, bool], ...]
"""Patterns, and whether a name matches them."""


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """A promise to keep: no value is in two of the parts."""

    parts: tuple[Shape, ...]
    location: str


@dataclass(frozen=True, slots=True)
class _Work:
    """Other places to look at first, and what to do then."""

    needed: Sequence[str]
    combine: Callable[[], Shape]


_Overlap = tuple[int, int, str]
"""An ordered pair of options of a ``oneOf``, by index, and a JSON type of which values may be both."""


class Reducer:
    """Shapes of the goals of one document.

    Raises:
        UnsatisfiableConstraint: a reference leads back to itself without going into a value.
        UnsupportedSchema: a keyword that is not enforced, or a ``oneOf`` that is not provably exclusive.
        ConstraintTooLarge: more than ``max_intersections`` of the options.
    """

    def __init__(self, document: Document, options: GrammarOptions, *, tells_apart: bool = True) -> None:
        """Bind to a document. Unless it ``tells_apart``, options of ``oneOf`` that overlap stay as they are."""
        self._document = document
        self._options = options
        self._shapes: dict[str, Shape] = {FALSE: NOTHING}
        self._goals: dict[Goal, Shape] = {(): ANY}
        self._readings: dict[str, Reading] = {}
        self._overlaps: dict[str, frozenset[_Overlap]] = {}
        self._exclusions: list[_Exclusion] = []
        self._is_between_proofs = tells_apart
        self._facts = KnownFacts(document)
        self._derivatives = Derivatives()
        self._names: dict[tuple[Goal, _Matched], Intersection] = {}
        self._merges = 0
        self.membership = Membership(self, options.max_string_states)

    @property
    def has_overlaps(self) -> bool:
        """Whether options of a ``oneOf`` were told apart by negation."""
        return bool(self._overlaps)

    def refusal(self) -> UnsupportedSchema:
        """The error if options of a ``oneOf`` overlap and cannot be told apart."""
        location, pairs = next(iter(self._overlaps.items()))
        first, second, _ = min(pairs)
        return UnsupportedSchema(
            f"The branches {first} and {second} of oneOf are not provably exclusive",
            location=location,
            hint="make them exclusive by type or by a required const member, or use anyOf",
        )

    def schema_at(self, pointer: str) -> Json:
        """What stands at a place of the document."""
        return self._document.at(pointer)

    def shape(self, goal: Goal) -> Shape:
        """What satisfies every schema of the goal."""
        known = self._goals.get(goal)
        if known is not None:
            return known
        return self._proven(goal) if self._is_between_proofs else self._conjunction(goal)

    def _proven(self, goal: Goal) -> Shape:
        """The shape of a goal, where every ``oneOf`` that it was found to depend on holds.

        That options overlap is only known once the shapes inside them are. What was found since the last proof is then
        found again, with those options told apart; all that was found before was proven then.
        """
        while True:
            begun, merges = [len(known) for known in self._tentative()], self._merges
            self._is_between_proofs = False
            try:
                shape = self._conjunction(goal)
                overlaps = self._found_overlaps()
            finally:
                self._is_between_proofs = True
            if not overlaps:
                return shape
            for location, pairs in overlaps.items():
                self._overlaps[location] = self._overlaps.get(location, frozenset()) | pairs
            for known, size in zip(self._tentative(), begun, strict=True):
                for key in list(known)[size:]:
                    del known[key]
            self._merges = merges

    def _tentative(self) -> tuple[dict[Any, Any], ...]:
        """What may depend on a ``oneOf`` that is not proven yet."""
        return self._shapes, self._goals, self._names

    def _conjunction(self, goal: Goal) -> Shape:
        if goal not in self._goals:
            shape = ANY
            for pointer in goal:
                shape = self._meet(shape, self._place(pointer), pointer)
            self._goals[goal] = shape
        return self._goals[goal]

    def _place(self, pointer: str) -> Shape:
        """The shape at one place, after those it refers to in place (depth first, without recursion)."""
        begun: dict[str, _Work] = {}
        pending = [pointer]
        while pending:
            budget.checkpoint()
            current = pending[-1]
            if current in self._shapes:
                pending.pop()
                continue
            if current not in begun:
                begun[current] = self._begin(current)
            missing = [place for place in begun[current].needed if place not in self._shapes]
            if not missing:
                self._shapes[current] = begun[current].combine()
            elif any(place in begun for place in missing):  # begun, not finished: it is on the way to here
                raise UnsatisfiableConstraint(
                    "The reference leads back to itself, so no value can satisfy it", location=pointer_of((current,))
                )
            else:
                pending.extend(reversed(missing))
        return self._shapes[pointer]

    def _begin(self, place: str) -> _Work:
        """What has to be known before the shape at ``place`` is, and how it follows from that."""
        if is_negated(place):
            inner = negated(place)
            return _Work([inner], lambda: self._complement(self._shapes[inner], inner))
        if parts := alternatives(place):
            return _Work(parts, lambda: unite(branch for part in parts for branch in self._shapes[part]))
        schema = self._document.at(pointer_of((place,)))
        if isinstance(schema, bool):
            return _Work([], lambda: ANY if schema else NOTHING)
        reading = self._reading(place)
        unions = [self._disjoint(union) for union in reading.unions]
        options = (option for union in unions for option in union.options)
        needed = list(reading.conjuncts)
        for option in options:
            needed += [*option.goal, *(negated(place) for place, _ in option.unless)]
        return _Work(needed, lambda: self._combine(reading, unions))

    def _reading(self, place: str) -> Reading:
        """What the schema object at ``place`` says."""
        if place not in self._readings:
            reading = keywords.read(self._document, place, self._options)
            if reading.other_members or reading.other_items:  # every case has an option of each union
                reading.unions = [*(union for union in reading.unions if union.exclusive), unevaluated(reading)]
            self._readings[place] = reading
        return self._readings[place]

    def _disjoint(self, union: Union) -> Union:
        """The union with every option that is known to overlap others reduced to what the others leave."""
        overlaps = self._overlaps.get(union.location, frozenset())
        if not union.exclusive or not overlaps:
            return union
        options = []
        for index, option in enumerate(union.options):
            rivals: dict[int, set[str]] = {}
            for first, second, kind in sorted(overlaps):
                if first == index:
                    rivals.setdefault(second, set()).add(kind)
            unless = (
                (place, frozenset(kinds)) for rival, kinds in rivals.items() for place in union.options[rival].goal
            )
            options.append(replace(option, unless=tuple(unless)))
        return replace(union, options=tuple(options))

    def _combine(self, reading: Reading, unions: Sequence[Union]) -> Shape:
        shape = reading.shape()
        for place in reading.conjuncts:
            shape = self._meet(shape, self._shapes[place], place)
        for union, told_apart in zip(reading.unions, unions, strict=True):
            parts = tuple(self._choose(shape, option, union.location) for option in told_apart.options)
            if union.exclusive:
                # What is left of an option may be exclusive where the option itself, which oneOf counts, is not.
                whole = parts
                if told_apart is not union:
                    whole = tuple(self._choose(shape, option, union.location) for option in union.options)
                self._exclusions.append(_Exclusion(whole, union.location))
            shape = unite(branch for part in parts for branch in part)
        return shape

    def _complement(self, shape: Shape, place: str) -> Shape:
        """The values that do not have the shape."""
        found: list[Branch] = []
        for kind, whole in UNCONSTRAINED.items():
            left: Shape = (whole,)
            for branch in shape:
                if branch.kind == kind:
                    left = absorbed(self._meet(left, complement(branch, self.membership.values, place), place))
            found.extend(left)
        return tuple(found)

    def _choose(self, shape: Shape, option: Option, location: str) -> Shape:
        shape = self._meet(shape, option.shape, location)
        for place in option.goal:
            shape = self._meet(shape, self._shapes[place], place)
            shape = absorbed(shape) if is_negated(place) else shape
        for place, kinds in option.unless:
            others = (whole for kind, whole in UNCONSTRAINED.items() if kind not in kinds)
            left = (branch for branch in self._shapes[negated(place)] if branch.kind in kinds)
            shape = absorbed(self._meet(shape, (*others, *left), place))
        return shape

    def _meet(self, left: Shape, right: Shape, location: str) -> Shape:
        budget.checkpoint()
        if left != ANY and right != ANY:
            kinds = Counter(branch.kind for branch in left)
            self._merges += sum(kinds[branch.kind] for branch in right)
        if self._merges > (limit := self._options.max_intersections):
            raise ConstraintTooLarge(
                f"The schema needs more intersections of alternatives than max_intersections, which is {limit}",
                location=pointer_of((location,)),
            )
        met = meet(left, right)
        return tuple(branch for branch in met if not self._is_plainly_empty(branch))

    def _is_plainly_empty(self, branch: Branch) -> bool:
        """Whether a required member is ruled out by the facts of its schemas."""
        if not isinstance(branch, Objects) or len(branch.layers) < 2:
            return False
        budget.checkpoint()
        return any(self._facts.are_contradictory(_member_goal(branch, name)) for name in branch.required)

    # Proofs -----------------------------------------------------------------------------------------------------

    def _found_overlaps(self) -> dict[str, set[_Overlap]]:
        """Check every ``oneOf`` that was met so far; what is found was not told apart yet."""
        found: dict[str, set[_Overlap]] = {}
        while self._exclusions:
            exclusion = self._exclusions.pop()
            told_apart = self._overlaps.get(exclusion.location, frozenset())
            for i, j in _rivals(exclusion.parts):
                for branch in self._meet(exclusion.parts[i], exclusion.parts[j], exclusion.location):
                    with located((exclusion.location,)):
                        is_both = (i, j, branch.kind) not in told_apart and self.may_hold((branch,))
                    if is_both:
                        pairs = (i, j, branch.kind), (j, i, branch.kind)
                        found.setdefault(exclusion.location, set()).update(pairs)
        return found

    def may_hold(self, shape: Shape, depth: int = 0) -> bool:
        """``False`` only if it is proven that no value has the shape."""
        return depth > _PROOF_DEPTH or any(self._may_hold(branch, depth + 1) for branch in shape)

    def _may_hold(self, branch: Branch, depth: int) -> bool:
        match branch:
            case Finite():
                return bool(self.membership.values(branch))
            case Objects() if branch.some:
                return self.may_hold(self.witnesses(branch, depth), depth)
            case Objects():
                goals: Sequence[Goal] = [self.member(branch, name) for name in branch.required]
            case Arrays():
                goals = [branch.item(index) for index in range(min(branch.minimum, branch.positions + 1))]
                for count in branch.counts:
                    if count.minimum and not self._may_contain(branch, count, depth):
                        return False
            case Strings():
                return self.may_match(branch)
            case _:
                return True
        return all(self.may_hold(self.shape(goal), depth) for goal in goals)

    def _may_contain(self, branch: Arrays, count: Count, depth: int) -> bool:
        last = max(count.start, branch.positions)
        goals = (join(branch.item(index), (count.place,)) for index in range(count.start, last + 1))
        return any(self.may_hold(self.shape(goal), depth) for goal in goals)

    def may_match(self, branch: Strings) -> bool:
        """``False`` only if it is proven that no string has the length and all the patterns.

        Raises:
            ConstraintTooLarge: more than one string automaton that is too large to intersect.
        """
        if branch == Strings(patterns=branch.patterns[:1]) and all(one.keyword == "format" for one in branch.patterns):
            return True
        return not _is_empty(self._strings([language(branch)]))

    # Names ------------------------------------------------------------------------------------------------------

    def member(self, branch: Objects, name: str) -> Goal:
        """What the value of the member ``name`` must satisfy; nothing does if the name itself is not allowed."""
        return branch.member(name) if self.membership.accepts(branch.naming, name) else (FALSE,)

    def witnesses(self, branch: Objects, depth: int = _WITNESS_DEPTH) -> Shape:
        """The branch by cases of which members are the ``some``: declared ones, or at most one undeclared, the last.

        An undeclared name may be written twice, and then the last value counts; so the one that is asked for has to
        be the last, and be all that is asked for. That cannot be said of two, unless any other one would do as well.

        Raises:
            ConstraintTooLarge: more than :data:`MAX_WITNESSES` cases.
        """
        cases: Shape = (branch,)
        for some in branch.some:
            found: list[Branch] = []
            for current in cases:
                budget.checkpoint()
                found.extend(self._witnessed(current, some, depth) if isinstance(current, Objects) else [current])
            cases = absorbed(unite(found))
            if len(cases) > MAX_WITNESSES:
                raise ConstraintTooLarge(
                    f"A negation needs more than {MAX_WITNESSES} cases", location=pointer_of((some.place,))
                )
        return cases

    def _witnessed(self, branch: Objects, some: Some, depth: int) -> Iterator[Branch]:
        """The branch by cases of which member is this ``some`` of it."""
        rest = replace(branch, some=tuple(one for one in branch.some if one != some))
        for one in self._declared_witnesses(branch, some):
            case = meet_branches(rest, one)
            if case is not None and not self._is_plainly_empty(case):
                yield case
        if self._may_be_undeclared(branch, some, depth):
            yield replace(rest, last=(*branch.last, some))
            every = self._is_every_undeclared
            one_at_most = branch.maximum is not None and branch.maximum < len(branch.required) + 2
            if branch.last and not one_at_most and not every(some) and not all(map(every, branch.last)):
                yield Inexpressible("object", "several conditions on undeclared members", some.place, branch)

    def _is_every_undeclared(self, some: Some) -> bool:
        """Whether any undeclared member would do."""
        return not some.is_about_names and not some.patterns and self.shape((some.place,)) == ANY

    def _declared_witnesses(self, branch: Objects, some: Some) -> Iterator[Objects]:
        for name in filter(some.applies, branch.names):
            if not some.is_about_names:
                free = self.shape((some.place,)) == ANY
                yield Objects(() if free else (one_member(name, some.place),), (name,))
            elif self.membership.accepts((some.place,), name):
                yield Objects(required=(name,))

    def _may_be_undeclared(self, branch: Objects, some: Some, depth: int) -> bool:
        return any(self.may_hold(self.shape(goal), depth + 1) for _, goal in self.undeclared(branch, (some,)))

    def undeclared(self, branch: Objects, somes: Sequence[Some] = ()) -> list[tuple[tuple[Node, ...], Goal]]:
        """The undeclared names in classes, and what their values must satisfy; of members that are all the ``somes``.

        A class is the intersection of some languages of decoded names. Its names match the same patterns. Classes
        are disjoint, and none is empty.

        Raises:
            ConstraintTooLarge: more than ``max_name_classes``, or too large to tell whether they are empty.
        """
        naming = join(branch.naming, *((some.place,) for some in somes if some.is_about_names))
        valued = [some for some in somes if not some.is_about_names]
        names = branch.names
        classes: list[_Matched] = [()]
        if naming:
            classes = [matched for matched in classes if self._leaves_names(naming, matched, names)]
        for pattern in branch.patterns:
            classes = [(*matched, (pattern, inside)) for inside in (True, False) for matched in classes]
            classes = [matched for matched in classes if self._leaves_names(naming, matched, names)]
            if len(classes) > (limit := self._options.max_name_classes):
                raise ConstraintTooLarge(
                    f"The patterns of names tell more classes apart than max_name_classes, which is {limit}"
                )
        declared = (Not(alt(*map(Literal, names))),) if names else ()
        found: list[tuple[tuple[Node, ...], Goal]] = []
        for matched in classes:
            patterns = [pattern for pattern, inside in matched if inside]
            if all(some.applies_under(patterns) for some in valued):
                demands = join(branch.under(patterns), *((some.place,) for some in valued))
                found.append(((*declared, *self._name_languages(naming, matched)), demands))
        return found

    def _leaves_names(self, naming: Goal, matched: _Matched, declared: Sequence[str]) -> bool:
        """Whether there is a name that satisfies the goal, matches just those patterns and is not declared."""
        key = naming, matched
        if key not in self._names:  # objects differ in what they declare, hardly in their patterns
            self._names[key] = self._strings(self._name_languages(naming, matched), self._derivatives)
        return not _is_empty(self._names[key], declared)

    def _name_languages(self, naming: Goal, matched: _Matched) -> tuple[Node, ...]:
        """The languages of the names that satisfy the goal and match just those patterns."""
        patterns = (pattern.node if inside else _outside(pattern) for pattern, inside in matched)
        return (*self._naming(naming), *patterns)

    def _naming(self, goal: Goal) -> tuple[Node, ...]:
        """The languages that every name must be in."""
        options: list[Node] = []
        for part in self.shape(goal):
            if part == UNCONSTRAINED["string"]:
                return ()
            if isinstance(part, Strings):
                options.append(language(part))
            elif isinstance(part, Finite) and part.kind == "string":
                options.extend(map(Literal, self.membership.values(part)))
        return (alt(*options),)

    def _strings(self, languages: Sequence[Node], derivatives: Derivatives | None = None) -> Intersection:
        return Intersection(languages, derivatives, most_states=self._options.max_string_states)


def refusal(branch: Inexpressible) -> UnsupportedSchema:
    """The error if values that nothing describes would have to be generated or recognised."""
    return UnsupportedSchema(
        f"A negation of {branch.what} is not supported",
        location=pointer_of((branch.location,)),
        hint="describe the values that are allowed",
    )


def _rivals(parts: Sequence[Shape]) -> Iterator[tuple[int, int]]:
    """The pairs of parts, by index, that may have a value in common: of two lists of values, those that share one."""
    owners: dict[Hashable, list[int]] = {}
    unlisted: list[int] = []
    for index, part in enumerate(budget.watched(parts)):
        lists = [branch for branch in part if isinstance(branch, Finite)]
        if len(lists) < len(part):
            unlisted.append(index)
            continue
        for value in {identity(value) for branch in lists for value in branch.listing.values}:
            owners.setdefault(value, []).append(index)
    seen: set[tuple[int, int]] = set()
    for pair in budget.watched(pair for sharing in owners.values() for pair in combinations(sharing, 2)):
        if pair not in seen:
            seen.add(pair)
            yield pair
    others = frozenset(unlisted)
    for one in unlisted:
        for other in budget.watched(range(len(parts))):
            if other > one or other not in others:
                yield min(one, other), max(one, other)


def _member_goal(branch: Objects, name: str) -> Goal:
    """What a member must satisfy, as far as no pattern has to be looked at."""
    goals = (layer.fields.get(name, () if layer.patterns else layer.additional) for layer in branch.layers)
    return join(*goals)


@lru_cache(maxsize=512)
def _outside(pattern: Pattern) -> Node:
    """One node wherever names do not match the pattern, so that what is known of it stays known."""
    return Not(pattern.node)


def _is_empty(strings: Intersection, excluded: Sequence[str] = ()) -> bool:
    try:
        return strings.is_empty(excluded)
    except Undecided:
        raise ConstraintTooLarge(
            f"The patterns and lengths of a string have more states together than max_string_states, which is "
            f"{strings.most_states}",
            hint="shorten the counts",
        ) from None
