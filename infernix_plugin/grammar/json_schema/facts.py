"""What a schema says plainly: by ``type``, ``const`` and ``enum``, without looking into any other schema.

It is enough to see that branches told apart by a constant member exclude each other, while their shapes are still
being computed. Facts only ever rule values out that the schema rules out as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from infernix_plugin.grammar.json_schema.json_value import Json, identity, kind_of
from infernix_plugin.grammar.json_schema.reader import Document
from infernix_plugin.grammar.json_schema.references import LEGACY
from infernix_plugin.grammar.json_schema.shape import FALSE, KINDS, Goal, alternatives, is_negated, pointer_of
from infernix_plugin.grammar.json_schema.vocabulary import ANNOTATIONS

_PLAIN = {"type", "const", "enum"}


_Values = frozenset[tuple[str, Hashable]]
"""Values by their type and identity."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The types and values that are not ruled out; ``listed`` is ``None`` if values are not listed."""

    kinds: frozenset[str] = frozenset(KINDS)
    listed: _Values | None = None
    unlisted: _Values = frozenset()

    def __and__(self, other: Facts) -> Facts:
        if self.listed is None or other.listed is None:
            listed = self.listed if other.listed is None else other.listed
        else:
            listed = self.listed & other.listed
        return Facts(self.kinds & other.kinds, listed, self.unlisted | other.unlisted)

    @property
    def contradictory(self) -> bool:
        """No value is left."""
        if self.listed is None:
            return not self.kinds
        return not any(kind in self.kinds for kind, _ in self.listed - self.unlisted)


NONE = Facts()


def of(schema: Json) -> Facts:
    """The facts of a value that satisfies the schema."""
    if not isinstance(schema, dict):
        return NONE
    facts = NONE
    if "type" in schema:
        facts &= Facts(_kinds(schema["type"]))
    if "const" in schema:
        facts &= Facts(listed=_identities([schema["const"]]))
    if isinstance(schema.get("enum"), list):
        facts &= Facts(listed=_identities(schema["enum"]))
    return facts


def of_others(schema: Json) -> Facts:
    """The facts of a value that does not satisfy the schema; there are none unless the schema says nothing else."""
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN | ANNOTATIONS.keys():
        return NONE
    facts = of(schema)
    if facts.listed is not None:
        if "integer" in _names(schema.get("type")):
            return NONE
        return Facts(unlisted=frozenset(value for value in facts.listed if value[0] in facts.kinds))
    if "type" not in schema or "integer" in _names(schema["type"]):
        return NONE
    return Facts(frozenset(KINDS) - facts.kinds)


def _names(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _kinds(value: Json) -> frozenset[str]:
    return frozenset("number" if name == "integer" else name for name in _names(value) if isinstance(name, str))


def _identities(values: Iterable[Json]) -> _Values:
    return frozenset((kind_of(value), identity(value)) for value in values)


class KnownFacts:
    """The facts of the places of one document."""

    def __init__(self, document: Document) -> None:
        """Bind to a document."""
        self._document = document
        self._contradictory: dict[Goal, bool] = {}
        self._known: dict[str, Facts] = {}

    def are_contradictory(self, goal: Goal) -> bool:
        """Whether the facts of the goal's schemas leave no value."""
        if len(goal) < 2:
            return False
        if goal not in self._contradictory:
            known = NONE
            for place in goal:
                known &= self._at(place)
            self._contradictory[goal] = known.contradictory
        return self._contradictory[goal]

    def _at(self, place: str) -> Facts:
        if place not in self._known:
            self._known[place] = self._read(place)
        return self._known[place]

    def _read(self, place: str) -> Facts:
        if place == FALSE or alternatives(place.removeprefix("!")):
            return NONE
        pointer = pointer_of((place,))
        schema = self._document.at(pointer)
        if (
            isinstance(schema, dict)
            and "$ref" in schema
            and self._document.references.resource(pointer).dialect in LEGACY
        ):
            return NONE
        return of_others(schema) if is_negated(place) else of(schema)
