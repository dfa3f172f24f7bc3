"""The values that do not satisfy a branch, as branches again, where that is possible.

What is inside an array or object stays a goal: the places of the document whose schemas must *not* hold are written
with a mark, so that a negation never looks into another schema either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from infernix_plugin.grammar.ir import Literal, Not, alt
from infernix_plugin.grammar.json_schema.json_value import Json, identity
from infernix_plugin.grammar.json_schema.shape import (
    FALSE,
    UNCONSTRAINED,
    Arrays,
    Boolean,
    Bound,
    Branch,
    Count,
    Finite,
    Goal,
    Inexpressible,
    Items,
    Listing,
    Members,
    Null,
    Numbers,
    Objects,
    Pattern,
    Shape,
    Some,
    Strings,
    negated,
)
from infernix_plugin.grammar.json_schema.strings import spelling


def complement(branch: Branch, values: Callable[[Finite], tuple[Json, ...]], location: str) -> Shape:
    """The values of the branch's type that are not in it; ``values`` lists the values of a finite one."""
    if branch == UNCONSTRAINED[branch.kind]:
        return ()
    match branch:
        case Finite():
            return tuple(_unlisted(branch, values(branch), location))
        case Numbers():
            return tuple(_other_numbers(branch))
        case Strings():
            return tuple(_other_strings(branch))
        case Arrays():
            return tuple(_other_arrays(branch, location))
        case Objects():
            return tuple(_other_objects(branch))
        case Inexpressible():
            return (branch.other, *(rest for one in branch.given for rest in complement(one, values, location)))
        case Null() | Boolean():
            return ()


def _unlisted(branch: Finite, values: tuple[Json, ...], location: str) -> Iterator[Branch]:
    kind = branch.kind
    if not values:
        yield UNCONSTRAINED[kind]
    elif kind == "boolean":
        rest = tuple(value for value in (True, False) if value not in values)
        if rest:
            yield Finite(kind, Listing(rest))
    elif kind == "string":
        listed = Pattern(" ".join(sorted(map(spelling, values))), alt(*map(Literal, values)), "enum")
        yield Strings(patterns=(_without(listed),))
    elif kind == "number":
        points = sorted({value.value for value in values})
        bounds = [None, *(Bound(point, exclusive=True) for point in points), None]
        for index in range(len(bounds) - 1):
            yield Numbers(lower=bounds[index], upper=bounds[index + 1])
    elif kind != "null":
        if all(identity(value) == (kind, ()) or identity(value) == (kind, frozenset()) for value in values):
            yield Arrays(minimum=1) if kind == "array" else Objects(minimum=1)
        else:
            yield Inexpressible(kind, "a listed array or object", location, branch)


def _without(pattern: Pattern) -> Pattern:
    """The strings that are not in the pattern's language."""
    node = pattern.node.item if isinstance(pattern.node, Not) else Not(pattern.node)
    # Patterns are told apart by source and keyword; a node may be a complement from the beginning, as "^(?!a)" is.
    negated_already = pattern.keyword.startswith("not ")
    keyword = pattern.keyword.removeprefix("not ") if negated_already else f"not {pattern.keyword}"
    return Pattern(pattern.source, node, keyword)


def _other_numbers(branch: Numbers) -> Iterator[Branch]:
    if branch.integer:
        yield Numbers(others=frozenset([Fraction(1)]))
    for step in branch.multiples:
        yield Numbers(others=frozenset([step]))
    for step in branch.others:
        yield Numbers(integer=step == 1, multiples=frozenset() if step == 1 else frozenset([step]))
    if branch.lower:
        yield Numbers(upper=replace(branch.lower, exclusive=not branch.lower.exclusive))
    if branch.upper:
        yield Numbers(lower=replace(branch.upper, exclusive=not branch.upper.exclusive))


def _other_strings(branch: Strings) -> Iterator[Branch]:
    if branch.minimum:
        yield Strings(maximum=branch.minimum - 1)
    if branch.maximum is not None:
        yield Strings(minimum=branch.maximum + 1)
    for pattern in branch.patterns:
        yield Strings(patterns=(_without(pattern),))


def _other_arrays(branch: Arrays, location: str) -> Iterator[Branch]:
    if branch.unique:
        yield Inexpressible("array", "uniqueItems", location, Arrays(unique=True))
    if branch.minimum:
        yield Arrays(maximum=branch.minimum - 1)
    if branch.maximum is not None:
        yield Arrays(minimum=branch.maximum + 1)
    for layer in branch.layers:
        for index, goal in enumerate(layer.prefix):
            for place in goal:
                prefix: tuple[Goal, ...] = (*[()] * index, (negated(place),))
                yield Arrays(minimum=index + 1, layers=(Items(prefix, ()),))
        start = len(layer.prefix)
        for place in layer.rest:
            yield Arrays(minimum=start + 1, counts=(Count(negated(place), start),))
    for count in branch.counts:
        if count.minimum:
            yield Arrays(counts=(Count(count.place, count.start, 0, count.minimum - 1),))
        if count.maximum is not None:
            yield Arrays(counts=(Count(count.place, count.start, count.maximum + 1),))


def _other_objects(branch: Objects) -> Iterator[Branch]:
    if branch.minimum:
        yield Objects(maximum=branch.minimum - 1)
    if branch.maximum is not None:
        yield Objects(minimum=branch.maximum + 1)
    for name in branch.required:
        yield Objects(layers=(one_member(name, FALSE),))
    for layer in branch.layers:
        for name, goal in layer.fields.items():
            for place in goal:
                yield Objects(layers=(one_member(name, negated(place)),), required=(name,))
        for pattern, goal in layer.patterns:
            for place in goal:
                yield Objects(some=(Some(negated(place), pattern=pattern),))
        for place in layer.additional:
            yield Objects(some=(Some(negated(place), layer=layer),))
    for place in branch.naming:
        yield Objects(some=(Some(negated(place)),))
    for some in branch.some:
        yield _none(some)


@lru_cache(maxsize=4096)
def one_member(name: str, place: str) -> Members:
    """A demand on one member. The same demand is the same layer, so that what repeats it is seen to."""
    return Members({name: (place,)})


def absorbed(shape: Shape) -> Shape:
    """The shape without the branches about objects that demand all that another one demands, and more."""
    kept: list[tuple[frozenset[object], Objects]] = []
    demands = [(_demands(branch), branch) for branch in shape if isinstance(branch, Objects)]
    for needed, branch in sorted(demands, key=lambda pair: len(pair[0])):
        wider = (one for known, one in kept if known <= needed)
        if not any(one.minimum <= branch.minimum and one.maximum in (None, branch.maximum) for one in wider):
            kept.append((needed, branch))
    left = {id(branch) for _, branch in kept}
    return tuple(branch for branch in shape if not isinstance(branch, Objects) or id(branch) in left)


def _demands(branch: Objects) -> frozenset[object]:
    required = [("required", name) for name in branch.required]
    naming = [("naming", place) for place in branch.naming]
    last = [("last", some) for some in branch.last]
    return frozenset([*branch.layers, *branch.some, *required, *naming, *last])


def _none(some: Some) -> Objects:
    """Objects without any such member."""
    goal = (negated(some.place),)
    if some.pattern:
        return Objects(layers=(Members({}, (), ((some.pattern, goal),)),))
    if some.layer is None:
        return Objects(naming=goal)
    others = tuple((pattern, ()) for pattern, _ in some.layer.patterns)
    return Objects(layers=(Members(dict.fromkeys(some.layer.fields, ()), goal, others),))
