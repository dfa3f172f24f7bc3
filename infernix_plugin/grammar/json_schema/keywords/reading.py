"""One schema object while its keywords are read, and what they leave to the reduction."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infernix_plugin.errors import UnsupportedSchema, excerpt
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.json_schema import vocabulary
from infernix_plugin.grammar.json_schema.json_value import Json, child, kind_of
from infernix_plugin.grammar.json_schema.keywords.operands import text
from infernix_plugin.grammar.json_schema.reader import Document
from infernix_plugin.grammar.json_schema.references import LEGACY
from infernix_plugin.grammar.json_schema.shape import (
    ANY,
    FALSE,
    UNCONSTRAINED,
    Arrays,
    Branch,
    Finite,
    Goal,
    Items,
    Listing,
    Members,
    Objects,
    Pattern,
    Shape,
    meet_branches,
)
from infernix_plugin.grammar.options import GrammarOptions


@dataclass(frozen=True, slots=True)
class Option:
    """One way to be valid: the schemas at some places hold, and the value has the shape.

    ``unless`` are places whose schemas do not hold if the value is of some JSON type, and those types.
    """

    goal: Goal
    shape: Shape = ANY
    unless: tuple[tuple[str, frozenset[str]], ...] = ()


@dataclass(frozen=True, slots=True)
class Union:
    """At least one, or exactly one, of some options."""

    options: tuple[Option, ...]
    location: str
    exclusive: bool = False


class Reading:
    """One schema object while its keywords are read.

    Attributes:
        assertions: every enforced keyword and the function that reads it.
        pointer: the place of the schema object.
        scope: the dynamic scope in which it is read, as :meth:`References.enter` writes it.
        dialect: the dialect in which it is written.
        branches: per JSON type, what the keywords read so far allow; a type that is ruled out is absent.
        listed: the values of ``enum`` and of ``const``.
        conjuncts: places whose schemas must hold for the same value.
        unions: alternatives for the same value.
        asides: places whose schemas need not hold, but evaluate something where they do.
        other_members, other_items: what must hold of those that nothing evaluates; ``None`` if nothing is said of them.
        satisfying: places whose schemas evaluate the items that satisfy them.
    """

    def __init__(self, document: Document, place: str, options: GrammarOptions, assertions: Assertions) -> None:
        self.document = document
        self.options = options
        self.assertions = assertions
        self.scope, self.pointer = document.references.enter(place)
        self.dialect = document.references.resource(self.pointer).dialect
        self.schema: dict[str, Json] = document.at(self.pointer)
        self.branches: dict[str, Branch] = dict(UNCONSTRAINED)
        self.listed: list[list[Json]] = []
        self.conjuncts: list[str] = []
        self.unions: list[Union] = []
        self.fields: dict[str, Goal] = {}
        self.patterns: list[tuple[Pattern, Goal]] = []
        self.additional: Goal = ()
        self.prefix: list[Goal] = []
        self.rest: Goal = ()
        self.asides: list[str] = []
        self.other_members: Goal | None = None
        self.other_items: Goal | None = None
        self.satisfying: list[str] = []
        self._read()

    def _read(self) -> None:
        legacy_ref = self.dialect in LEGACY and "$ref" in self.schema
        for keyword, value in self.schema.items():
            location = child(self.pointer, keyword)
            assertion = self.assertions.get(keyword)
            if assertion is None:
                self.pass_over(keyword, location)
                continue
            if legacy_ref and keyword not in ("$ref", "$id", "id"):
                if self.options.unknown_keywords == "ignore":
                    continue
                raise UnsupportedSchema(
                    f"{keyword} stands next to $ref, where {self.dialect} ignores it",
                    location=location,
                    hint="put the $ref into an allOf",
                )
            assertion(self, value, location)

    def pass_over(self, keyword: str, location: str) -> None:
        """Accept a keyword that asserts nothing; refuse any other."""
        if vocabulary.is_annotation(keyword):
            return
        if keyword in vocabulary.REFUSED:
            raise UnsupportedSchema(
                f"The keyword {keyword} is not supported", location=location, hint=vocabulary.REFUSED[keyword]
            )
        if self.options.unknown_keywords == "ignore":
            return
        known = [*self.assertions, *vocabulary.ANNOTATIONS, *vocabulary.STRUCTURE, *vocabulary.REFUSED]
        close = difflib.get_close_matches(keyword, [name for name in known if name != keyword], n=1)
        advice = f"did you mean {close[0]}?" if close else "remove it, or give it a name that starts with x-"
        raise UnsupportedSchema(f"Unknown keyword {excerpt(keyword)}", location=location, hint=advice)

    def narrow(self, constraint: Branch) -> None:
        """Let values of the constraint's type through only if they satisfy it."""
        current = self.branches.get(constraint.kind)
        if current is not None:
            narrowed = meet_branches(current, constraint)
            if narrowed is None:
                del self.branches[constraint.kind]
            else:
                self.branches[constraint.kind] = narrowed

    def depend(self, name: str, consequence: Option, location: str) -> None:
        """Let objects with the member ``name`` through only under the consequence, which requires the name."""
        absent = Objects(layers=(Members({text(name, location): (FALSE,)}),))
        others = tuple(absent if kind == absent.kind else branch for kind, branch in UNCONSTRAINED.items())
        self.unions.append(Union((consequence, Option((), others)), location))

    def keep(self, kinds: set[str]) -> None:
        """Rule out every JSON type but these."""
        self.branches = {kind: branch for kind, branch in self.branches.items() if kind in kinds}

    def subschema(self, pointer: str) -> str:
        """The place of what stands at ``pointer``, after checking that it is a schema."""
        self.document.schema_at(pointer)
        return self.scope + pointer

    def goal(self, pointer: str) -> Goal:
        """What a part of the value must satisfy; the schemas ``true`` and ``{}`` demand nothing."""
        return () if self.document.schema_at(pointer) in (True, {}) else (self.scope + pointer,)

    def unevaluated(self, location: str) -> Goal:
        """What must hold of the parts that nothing evaluates; only later dialects can say it."""
        if self.dialect in LEGACY:
            raise UnsupportedSchema(
                f"{self.dialect} has no {location.rpartition('/')[2]}",
                location=location,
                hint="declare a later dialect in $schema",
            )
        return self.goal(location)

    @property
    def evaluates_every_member(self) -> bool:
        """Whether a keyword applies to all members that no other one does."""
        return "additionalProperties" in self.schema

    @property
    def evaluates_every_item(self) -> bool:
        """Whether a keyword applies to all items that no other one does."""
        rest = "additionalItems" if isinstance(self.schema.get("items"), list) else "items"
        return rest in self.schema

    def shape(self) -> Shape:
        """What the schema's own assertions allow, without its in-place subschemas."""
        if self.fields or self.patterns or self.additional:
            self.narrow(Objects(layers=(Members(self.fields, self.additional, tuple(self.patterns)),)))
        if self.prefix or self.rest:
            self.narrow(Arrays(layers=(Items(tuple(self.prefix), self.rest),)))
        branches: list[Branch] = list(self.branches.values())
        for values in self.listed:
            by_kind: dict[str, list[Json]] = {}
            for value in budget.watched(values):
                by_kind.setdefault(kind_of(value), []).append(value)
            pairs = (
                meet_branches(Finite(branch.kind, Listing(tuple(by_kind[branch.kind]))), branch)
                for branch in branches
                if branch.kind in by_kind
            )
            branches = [branch for branch in pairs if branch is not None]
        return tuple(branches)


Assertions = Mapping[str, Callable[[Reading, Json, str], None]]
