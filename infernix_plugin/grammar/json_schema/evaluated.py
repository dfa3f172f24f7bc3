"""``unevaluatedProperties`` and ``unevaluatedItems`` as a union of cases in which what is evaluated is known.

A schema evaluates a member or an item by itself and by every in-place subschema that holds for the same value. Which
of the branches of ``anyOf``, ``oneOf`` or ``if`` hold is not known in advance; but more of them only ever evaluate
more, and so free more from what is demanded of the rest. A value is therefore valid exactly if *some* choice of
branches holds for which the rest is as demanded, and no case has to say which branches do not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.json_schema import keywords
from infernix_plugin.grammar.json_schema.json_value import child
from infernix_plugin.grammar.json_schema.keywords import Option, Reading, Union
from infernix_plugin.grammar.json_schema.shape import (
    ANY,
    UNCONSTRAINED,
    Arrays,
    Branch,
    Items,
    Members,
    Objects,
    Pattern,
    Shape,
    either,
    is_negated,
    join,
    meet,
    negated,
    pointer_of,
)

MAX_CASES = 256
"""Most choices of branches that evaluate different things."""
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Members by name and by pattern of names, items by position and by the places of schemas they satisfy."""

    names: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    every_member: bool = False
    positions: int = 0
    satisfying: tuple[str, ...] = ()
    every_item: bool = False

    def __or__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            _union(self.names, other.names),
            _union(self.patterns, other.patterns),
            self.every_member or other.every_member,
            max(self.positions, other.positions),
            _union(self.satisfying, other.satisfying),
            self.every_item or other.every_item,
        )


T = TypeVar("T")


def _union(left: tuple[T, ...], right: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(left + right))


@dataclass(frozen=True, slots=True)
class Case:
    """If all of the options hold, this is evaluated. The options are bits, by their place in a list."""

    options: int
    evaluated: Evaluated

    def __and__(self, other: Case) -> Case:
        return Case(self.options | other.options, self.evaluated | other.evaluated)

    def covers(self, other: Case) -> bool:
        """Whether the other case lets no value through that this one does not."""
        return self.options & ~other.options == 0 and self.evaluated | other.evaluated == self.evaluated


_NOTHING = Case(0, Evaluated())


def unevaluated(reading: Reading) -> Union:
    """The cases of a schema that makes demands of what is not evaluated.

    Raises:
        ConstraintTooLarge: more than :data:`MAX_CASES`, or references that are nested too deeply.
        UnsatisfiableConstraint: a reference leads back to itself without going into a value.
    """
    location = reading.pointer
    search = _Search(reading)
    cases = search.cases(reading, (location,))
    return Union(tuple(_option(search.chosen(case), case.evaluated, reading) for case in cases), location)


def _option(chosen: list[Option], evaluated: Evaluated, reading: Reading) -> Option:
    shape: Shape = ANY
    for option in chosen:
        shape = meet(shape, option.shape)
    if reading.other_members and not evaluated.every_member:
        patterns = tuple((pattern, ()) for pattern in evaluated.patterns)
        members = Members(dict.fromkeys(evaluated.names, ()), reading.other_members, patterns)
        shape = meet(shape, _only(Objects(layers=(members,))))
    if reading.other_items and not evaluated.every_item:
        rest = (either(*reading.other_items, *evaluated.satisfying),)
        shape = meet(shape, _only(Arrays(layers=(Items(((),) * evaluated.positions, rest),))))
    return Option(join(*(option.goal for option in chosen)), shape)


def _only(branch: Branch) -> Shape:
    """The values of the branch and all of other types."""
    return tuple(branch if kind == branch.kind else whole for kind, whole in UNCONSTRAINED.items())


class _Search:
    """The cases of the schemas that apply to the same value as the one that is ``asking``."""

    def __init__(self, asking: Reading) -> None:
        self._asking = asking
        self._options: dict[Option, int] = {}

    def chosen(self, case: Case) -> list[Option]:
        """The options of a case."""
        return [option for option, index in self._options.items() if case.options >> index & 1]

    def cases(self, reading: Reading, above: tuple[str, ...]) -> list[Case]:
        """The cases of one schema object, ``above`` being the places that lead to it, its own the last."""
        if any(isinstance(value, dict) for value in reading.schema.get("dependencies", {}).values()):
            raise UnsupportedSchema(
                "It is not defined what dependencies evaluates",
                location=child(reading.pointer, "dependencies"),
                hint="use dependentSchemas",
            )
        cases = [Case(0, self._own(reading))]
        for place in reading.conjuncts:
            cases = self._distinct(one & other for one, other in product(cases, self._at(place, above)))
        for union in reading.unions:
            choices = [case for option in union.options for case in self._choices(option, above)]
            if not union.exclusive:
                choices = self._together(choices)
            cases = self._distinct(one & other for one, other in product(cases, choices))
        for place in reading.asides:
            choices = [_NOTHING, *self._choices(Option((place,)), above)]
            cases = self._distinct(one & other for one, other in product(cases, choices))
        return cases

    def _at(self, place: str, above: tuple[str, ...]) -> list[Case]:
        if is_negated(place):
            return [_NOTHING]
        if place in above:
            raise UnsatisfiableConstraint(
                "The reference leads back to itself, so no value can satisfy it", location=pointer_of((place,))
            )
        if len(above) > _MAX_DEPTH:
            raise ConstraintTooLarge(
                f"What is evaluated depends on more than {_MAX_DEPTH} schemas one in the other",
                location=pointer_of((place,)),
            )
        schema = self._asking.document.schema_at(pointer_of((place,)))
        if isinstance(schema, bool):
            return [_NOTHING]
        return self.cases(keywords.read(self._asking.document, place, self._asking.options), (*above, place))

    def _choices(self, option: Option, above: tuple[str, ...]) -> Iterator[Case]:
        """The cases in which an option holds."""
        chosen = Case(1 << self._options.setdefault(option, len(self._options)), Evaluated())
        for parts in product(*(self._at(place, above) for place in option.goal)):
            case = chosen
            for part in parts:
                case = case & part
            yield case

    def _together(self, choices: Iterable[Case]) -> list[Case]:
        """The choices and all that hold together, as far as that evaluates more."""
        found: list[Case] = []
        for choice in choices:
            found = self._distinct([*found, choice, *(case & choice for case in found)])
        return found

    def _distinct(self, cases: Iterable[Case]) -> list[Case]:
        """The cases without those that are covered by others."""
        kept: list[Case] = []
        for case in sorted(cases, key=lambda case: case.options.bit_count()):
            budget.checkpoint()
            if not any(other.covers(case) for other in kept) and not self._is_contradictory(case):
                kept.append(case)
        if len(kept) > MAX_CASES:
            raise ConstraintTooLarge(
                f"What is evaluated differs in more than {MAX_CASES} cases", location=self._asking.pointer
            )
        return kept

    def _is_contradictory(self, case: Case) -> bool:
        """Whether it is plain that the options cannot hold together."""
        places = {place for option in self.chosen(case) for place in option.goal}
        return any(negated(place) in places for place in places if is_negated(place))

    def _own(self, reading: Reading) -> Evaluated:
        """What a schema object evaluates by itself, as far as that matters to the one that is asking."""
        asking, nested = self._asking, reading is not self._asking
        evaluated = Evaluated()
        if asking.other_members:
            evaluated = replace(
                evaluated,
                names=tuple(reading.fields),
                patterns=tuple(pattern for pattern, _ in reading.patterns),
                every_member=reading.evaluates_every_member or (nested and reading.other_members is not None),
            )
        if asking.other_items:
            evaluated = replace(
                evaluated,
                positions=len(reading.prefix),
                satisfying=tuple(reading.satisfying),
                every_item=reading.evaluates_every_item or (nested and reading.other_items is not None),
            )
        return evaluated
