"""How many different values there are to choose from: lower bounds, so that a unique item is always left."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from functools import lru_cache

from infernix_plugin.grammar.json_schema.derivatives import Intersection
from infernix_plugin.grammar.json_schema.json_value import Json, Number, kind_of
from infernix_plugin.grammar.json_schema.reducer import Reducer
from infernix_plugin.grammar.json_schema.shape import (
    UNCONSTRAINED,
    Arrays,
    Boolean,
    Branch,
    Finite,
    Goal,
    Null,
    Numbers,
    Objects,
    Shape,
    Strings,
)
from infernix_plugin.grammar.json_schema.strings import language

ENDLESS = 1 << 20
"""So many different values, or more, are not counted."""
_MANY_STRINGS = 1 << 10
"""Nor are so many strings of one pattern."""
_DEPTH = 4
_EXACT = 1 << 53  # integers up to here are different as binary64 numbers


def reading(value: Json) -> Hashable:
    """Equal for values that a reader of binary64 numbers may take for equal."""
    kind = kind_of(value)
    match value:
        case Number():
            return kind, float(value.text)
        case list():
            return kind, tuple(map(reading, value))
        case dict():
            return kind, frozenset((name, reading(item)) for name, item in value.items())
    return kind, value


def supply(reducer: Reducer, goal: Goal, enough: int = ENDLESS) -> int:
    """At least so many different values satisfy the goal; not counted further than ``enough``."""
    return _count(reducer, reducer.shape(goal), enough, 0)


def exact_supply(reducer: Reducer, goal: Goal) -> int | None:
    """How many different values satisfy the goal, if they are listed or the integers of an interval."""
    listed = reducer.membership.listed(goal)
    if listed is not None:
        return len(set(map(reading, listed)))
    match reducer.shape(goal):
        case (Numbers(integer=True, multiples=multiples, others=others) as branch,) if not multiples and not others:
            low, high = branch.integers
            if low is not None and high is not None and -_EXACT <= low <= high <= _EXACT:
                return high - low + 1
    return None


def roomy(reducer: Reducer, branch: Branch) -> bool:
    """Whether any value of the branch, once begun, can become different from any finite number of others."""
    match branch:
        case Strings():
            return branch.maximum is None and not branch.patterns
        case Arrays():
            rest = branch.item(branch.positions)
            needed = ENDLESS if branch.unique else 1
            return branch.maximum is None and not branch.counts and supply(reducer, rest, needed) >= needed
        case Objects():
            return _is_open(reducer, branch)
        case _:
            return False


def _is_open(reducer: Reducer, branch: Objects) -> bool:
    """Whether members of any undeclared name can be added."""
    if branch.maximum is not None or branch.naming or branch.patterns or branch.some or branch.last:
        return False
    return any(supply(reducer, goal, 1) for _, goal in reducer.undeclared(branch))


def _count(reducer: Reducer, shape: Shape, enough: int, depth: int) -> int:
    largest: dict[str, int] = {}  # branches of one type may overlap
    for branch in shape:
        largest[branch.kind] = max(largest.get(branch.kind, 0), _count_branch(reducer, branch, enough, depth))
    return min(enough, sum(largest.values()))


def _count_branch(reducer: Reducer, branch: Branch, enough: int, depth: int) -> int:
    if branch == UNCONSTRAINED["array"] or branch == UNCONSTRAINED["object"]:
        return enough
    match branch:
        case Null():
            return 1
        case Boolean():
            return 2
        case Finite():
            return len(set(map(reading, reducer.membership.values(branch))))
        case Numbers():
            return _count_numbers(branch, enough)
        case Strings():
            return _count_strings(branch, enough)
        case Arrays() if depth < _DEPTH and not branch.counts:
            return _count_arrays(reducer, branch, enough, depth + 1)
        case Objects() if depth < _DEPTH and not branch.some and not branch.last:
            return _count_objects(reducer, branch, enough, depth + 1)
        case _:
            return 0


def _count_arrays(reducer: Reducer, branch: Arrays, enough: int, depth: int) -> int:
    """Those of the least length."""
    if branch.minimum == 0:
        one = 0 if branch.maximum == 0 else _count(reducer, reducer.shape(branch.item(0)), enough, depth)
        return 1 + one
    if branch.minimum > branch.positions + 1:
        return 0
    counts = [_count(reducer, reducer.shape(branch.item(index)), enough, depth) for index in range(branch.minimum)]
    if branch.unique:
        return max(0, min(counts) - branch.minimum + 1)
    return math.prod(counts)


def _count_objects(reducer: Reducer, branch: Objects, enough: int, depth: int) -> int:
    """Those with the required members alone, or with some optional ones of few."""
    if branch.minimum > len(branch.required):
        return 0
    found = math.prod(
        _count(reducer, reducer.shape(reducer.member(branch, name)), enough, depth) for name in branch.required
    )
    if not found or branch.maximum is not None:
        return found
    if _is_open(reducer, branch):
        return enough
    for name in branch.names:
        if found < enough and name not in branch.required:
            found *= 1 + _count(reducer, reducer.shape(reducer.member(branch, name)), enough, depth)
    return found


def _count_numbers(branch: Numbers, enough: int) -> int:
    if branch.others:
        return 0
    if branch.multiples:
        return _count_multiples(branch)
    if branch.integer:
        low, high = branch.integers
        least = -_EXACT if low is None else max(low, -_EXACT)
        most = _EXACT if high is None else min(high, _EXACT)
        return max(0, most - least + 1)
    bounds = [bound.value for bound in (branch.lower, branch.upper) if bound]
    if not bounds:
        return enough
    size = max(map(abs, bounds), default=Fraction(0))
    if len(bounds) == 1:
        return enough if size < 10**300 else 0
    return enough if size > Fraction(1, 10**300) and bounds[1] - bounds[0] > size / 10**6 else 0


def _count_multiples(branch: Numbers) -> int:
    """Those near zero, where all of them are different binary64 numbers of few digits."""
    steps = [*branch.multiples, Fraction(1)] if branch.integer else [*branch.multiples]
    step = math.lcm(*(one.numerator for one in steps)) * Fraction(1, math.gcd(*(one.denominator for one in steps)))
    if not Fraction(1, 10**6) <= step <= 10**6:
        return 0
    edge = Fraction(10**12) * min(step, Fraction(1))
    low = max(-edge, branch.lower.value) if branch.lower else -edge
    high = min(edge, branch.upper.value) if branch.upper else edge
    first, last = math.ceil(low / step), math.floor(high / step)
    left_out = sum(bound is not None and bound.exclusive for bound in (branch.lower, branch.upper))
    return max(0, last - first + 1 - left_out)


@lru_cache(maxsize=256)
def _count_strings(branch: Strings, enough: int) -> int:
    if not branch.patterns:
        if branch.maximum == 0:
            return 1
        return enough
    return Intersection([language(branch)]).at_least(min(enough, _MANY_STRINGS))
