"""One small function per JSON Schema keyword, and the table of them, which is also the documentation of the support.

A function takes the :class:`Reading` of the schema object that its keyword stands in, the keyword's value and its
pointer, and narrows the reading. It never looks into a subschema: it only notes where that is.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from infernix_plugin.errors import ConstraintTooLarge, InvalidRegex, UnsupportedSchema, excerpt
from infernix_plugin.grammar import regex
from infernix_plugin.grammar.budget import CompileTimeout
from infernix_plugin.grammar.json_schema import formats, vocabulary
from infernix_plugin.grammar.json_schema.json_value import Json, Number, child, kind_of, shown
from infernix_plugin.grammar.json_schema.reader import Document, fail
from infernix_plugin.grammar.json_schema.references import LEGACY
from infernix_plugin.grammar.json_schema.shape import (
    ANY,
    FALSE,
    KINDS,
    UNCONSTRAINED,
    Arrays,
    Bound,
    Branch,
    Count,
    Finite,
    Goal,
    Items,
    Listing,
    Members,
    Numbers,
    Objects,
    Pattern,
    Shape,
    Strings,
    meet_branches,
    negated,
)
from infernix_plugin.grammar.options import GrammarOptions

_INT64 = range(-(2**63), 2**63)


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

    def __init__(self, document: Document, place: str, options: GrammarOptions) -> None:
        self.document = document
        self.options = options
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
            assertion = ASSERTIONS.get(keyword)
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
        known = [*ASSERTIONS, *vocabulary.ANNOTATIONS, *vocabulary.STRUCTURE, *vocabulary.REFUSED]
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
            listings = {kind: Listing(tuple(one for one in values if kind_of(one) == kind)) for kind in self.branches}
            pairs = (
                meet_branches(Finite(branch.kind, listings[branch.kind]), branch)
                for branch in branches
                if listings[branch.kind].values
            )
            branches = [branch for branch in pairs if branch is not None]
        return tuple(branches)


# Values of keywords ---------------------------------------------------------------------------------------------


def _count(value: Json, location: str) -> int:
    number = value.value if isinstance(value, Number) else None
    if number is None or number.denominator != 1 or number < 0:
        fail("The value must be a non-negative integer", location)
    return int(number)


def _bound(value: Json, location: str) -> Bound:
    """The bound as every parser understands it: integers exact, other large numbers as binary64 has them."""
    if not isinstance(value, Number):
        fail("The value must be a number", location)
    exact = value.value
    if exact is None or not (value.is_integer_text or _survives(value)):
        raise UnsupportedSchema(
            f"The bound {excerpt(value.text)} is not preserved by binary64", location=location, hint="shorten it"
        )
    rounded = not value.is_integer_text and abs(exact) > 2**53
    return Bound(Fraction(float(value.text)) if rounded else exact)


def _names(value: Json, location: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        fail("The value must be an array of property names", location)
    return [text(name, child(location, index)) for index, name in enumerate(value)]


def text(value: str, location: str) -> str:
    """``value``, after checking that UTF-8 can carry it."""
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise UnsupportedSchema("An unpaired surrogate cannot be generated", location=location)
    return value


def _pattern(reading: Reading, source: str, location: str) -> Pattern:
    try:
        return Pattern(source, regex.search(text(source, location), reading.options))
    except CompileTimeout:
        raise
    except (InvalidRegex, ConstraintTooLarge) as error:
        place = f" ({error.location})" if error.location else ""
        kind = ConstraintTooLarge if isinstance(error, ConstraintTooLarge) else UnsupportedSchema
        raise kind(f"The pattern: {error.message}{place}", location=location, hint=error.hint) from error


def _listed(value: Json, location: str) -> list[str]:
    """The pointers of the schemas in an array."""
    if not isinstance(value, list) or not value:
        fail("The value must be a non-empty array of schemas", location)
    return [child(location, index) for index in range(len(value))]


# Any type -------------------------------------------------------------------------------------------------------


def type_(reading: Reading, value: Json, location: str) -> None:
    """The JSON types that are allowed; ``integer`` is the part of ``number`` without a fraction."""
    names = value if isinstance(value, list) else [value]
    known = (*KINDS, "integer")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
            fail(
                f"{shown(name)} is not a JSON type",
                location,
                f"did you mean {close[0]}?" if close else f"the types are {', '.join(known)}",
            )
    if not names:
        fail("type lists no type", location)
    reading.keep({"number" if name == "integer" else name for name in names})
    if "number" not in names:
        reading.narrow(Numbers(integer=True))


def enum(reading: Reading, value: Json, location: str) -> None:
    """One of the listed values; those that the other keywords refuse are left out."""
    if not isinstance(value, list):
        fail("The value must be an array", location)
    for index, item in enumerate(value):
        _check_literal(item, child(location, index))
    reading.listed.append(value)


def const(reading: Reading, value: Json, location: str) -> None:
    """Exactly this value."""
    _check_literal(value, location)
    reading.listed.append([value])


def _check_literal(value: Json, location: str) -> None:
    """Refuse a value that we could not write or that a parser would change."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            text(part, location)
        elif isinstance(part, Number) and not _survives(part):
            raise UnsupportedSchema(
                f"The number {excerpt(part.text)} is not preserved by int64 and binary64",
                location=location,
                hint="shorten it, or use a string",
            )
        elif isinstance(part, dict):
            pending.extend(part)
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


def _survives(number: Number) -> bool:
    """Whether a parser that knows int64 and binary64 can print the number again as it is."""
    exact = number.value
    if exact is None:
        return False
    if exact.denominator == 1 and int(exact) in _INT64:
        return True
    return not number.is_integer_text and Number(repr(float(number.text))).value == exact


# Numbers --------------------------------------------------------------------------------------------------------


def minimum(reading: Reading, value: Json, location: str) -> None:
    """At least this, or more than this with draft-04's ``exclusiveMinimum: true``."""
    exclusive = reading.schema.get("exclusiveMinimum") is True
    reading.narrow(Numbers(lower=Bound(_bound(value, location).value, exclusive)))


def maximum(reading: Reading, value: Json, location: str) -> None:
    """At most this, or less than this with draft-04's ``exclusiveMaximum: true``."""
    exclusive = reading.schema.get("exclusiveMaximum") is True
    reading.narrow(Numbers(upper=Bound(_bound(value, location).value, exclusive)))


def exclusive_minimum(reading: Reading, value: Json, location: str) -> None:
    """More than this."""
    if not _draft4_flag(reading, value, location):
        reading.narrow(Numbers(lower=Bound(_bound(value, location).value, exclusive=True)))


def exclusive_maximum(reading: Reading, value: Json, location: str) -> None:
    """Less than this."""
    if not _draft4_flag(reading, value, location):
        reading.narrow(Numbers(upper=Bound(_bound(value, location).value, exclusive=True)))


def _draft4_flag(reading: Reading, value: Json, location: str) -> bool:
    if not isinstance(value, bool):
        return False
    if reading.document.references.declares_dialect and reading.dialect != "draft-04":
        fail("A boolean exclusive bound is draft-04", location, "write the bound itself as a number")
    return True


def multiple_of(reading: Reading, value: Json, location: str) -> None:
    """A multiple of this, exactly as decimal numbers; refused where that needs too large a grammar."""
    step = _bound(value, location).value
    if step <= 0:
        fail("The value must be greater than 0", location)
    reading.narrow(Numbers(integer=True) if step == 1 else Numbers(multiples=frozenset([step])))


# Strings --------------------------------------------------------------------------------------------------------


def min_length(reading: Reading, value: Json, location: str) -> None:
    """At least this many characters, counted after decoding the escapes."""
    reading.narrow(Strings(minimum=_count(value, location)))


def max_length(reading: Reading, value: Json, location: str) -> None:
    """At most this many characters, counted after decoding the escapes; at most the setting `max_repetition`."""
    reading.narrow(Strings(maximum=_count(value, location)))


def pattern(reading: Reading, value: Json, location: str) -> None:
    """An ECMAScript expression found somewhere in the string; lookaround and inner anchors only outside of loops."""
    if not isinstance(value, str):
        fail("The value must be a regular expression", location)
    reading.narrow(Strings(patterns=(_pattern(reading, value, location),)))


def format_(reading: Reading, value: Json, location: str) -> None:
    """A format of the list below, asserted; any other is refused, or with `unknown_keywords=ignore` passed over."""
    if not isinstance(value, str):
        fail("The value must be the name of a format", location)
    if value in formats.FORMATS:
        reading.narrow(Strings(patterns=(Pattern(value, formats.language(value), "format"),)))
    elif value in formats.NUMBER_FORMATS:
        reading.narrow(formats.NUMBER_FORMATS[value])
    elif value in formats.REFUSED_FORMATS:
        hint = formats.REFUSED_FORMATS[value]
        raise UnsupportedSchema(f"The format {value} is not supported", location=location, hint=hint)
    elif value not in formats.FREE_FORMATS and reading.options.unknown_keywords != "ignore":
        close = difflib.get_close_matches(value, [*formats.FORMATS, *formats.NUMBER_FORMATS], n=1)
        advice = f"did you mean {close[0]}?" if close else "use pattern, or leave format out"
        raise UnsupportedSchema(f"Unknown format {excerpt(value)}", location=location, hint=advice)


# Arrays ---------------------------------------------------------------------------------------------------------


def items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items after the prefix; an array of schemas is the prefix itself, as before 2020-12."""
    if not isinstance(value, list):
        reading.rest = reading.goal(location)
        return
    if "prefixItems" in reading.schema:
        fail("items cannot be an array next to prefixItems", location)
    reading.prefix = [reading.goal(child(location, index)) for index in range(len(value))]


def additional_items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items after an ``items`` array; without one it says nothing."""
    if isinstance(reading.schema.get("items"), list):
        reading.rest = reading.goal(location)


def prefix_items(reading: Reading, value: Json, location: str) -> None:
    """The schemas of the first items, position by position."""
    reading.prefix = [reading.goal(pointer) for pointer in _listed(value, location)]


def min_items(reading: Reading, value: Json, location: str) -> None:
    """At least this many items."""
    reading.narrow(Arrays(minimum=_count(value, location)))


def max_items(reading: Reading, value: Json, location: str) -> None:
    """At most this many items; at most the setting `max_repetition`."""
    reading.narrow(Arrays(maximum=_count(value, location)))


def contains(reading: Reading, value: Json, location: str) -> None:
    """At least `minContains` items (1 without it) and at most `maxContains` satisfy the schema."""
    if reading.dialect == "draft-04":
        reading.pass_over("contains", location)
        return
    bounds = [
        _count(reading.schema[keyword], child(reading.pointer, keyword)) if keyword in reading.schema else default
        for keyword, default in (("minContains", 1), ("maxContains", None))
    ]
    if reading.dialect == "2020-12":
        reading.satisfying.append(reading.subschema(location))
    least, most = (1, None) if reading.dialect in ("draft-06", "draft-07") else bounds
    if least or most is not None:
        reading.narrow(Arrays(counts=(Count(reading.subschema(location), 0, least or 0, most),)))


def contains_bound(reading: Reading, value: Json, location: str) -> None:
    """Read with `contains`; without one, and before draft 2019-09, it says nothing."""
    _count(value, location)


def unique_items(reading: Reading, value: Json, location: str) -> None:
    """No two equal items, nor two that read as the same binary64 number; refused beside `contains`."""
    if not isinstance(value, bool):
        fail("The value must be true or false", location)
    if value:
        reading.narrow(Arrays(unique=True))


def unevaluated_items(reading: Reading, value: Json, location: str) -> None:
    """The schema of the items that neither a keyword beside it nor an in-place subschema that holds applies to."""
    reading.other_items = _others(reading, location)


def _others(reading: Reading, location: str) -> Goal:
    if reading.dialect in LEGACY:
        raise UnsupportedSchema(
            f"{reading.dialect} has no {location.rpartition('/')[2]}",
            location=location,
            hint="declare a later dialect in $schema",
        )
    return reading.goal(location)


# Objects --------------------------------------------------------------------------------------------------------


def properties(reading: Reading, value: Json, location: str) -> None:
    """The schemas of the members, by name, generated in this order."""
    if not isinstance(value, dict):
        fail("The value must be an object of schemas", location)
    for name in value:
        pointer = child(location, name)
        reading.fields[text(name, pointer)] = reading.goal(pointer)


def pattern_properties(reading: Reading, value: Json, location: str) -> None:
    """The schemas of the members whose name holds a match of an expression, declared or not."""
    if not isinstance(value, dict):
        fail("The value must be an object of schemas", location)
    for source in value:
        pointer = child(location, source)
        reading.patterns.append((_pattern(reading, source, pointer), reading.goal(pointer)))


def property_names(reading: Reading, value: Json, location: str) -> None:
    """What every name must satisfy, as a string."""
    reading.narrow(Objects(naming=reading.goal(location)))


def min_properties(reading: Reading, value: Json, location: str) -> None:
    """At least this many members; if more than one has to have an undeclared name, that is refused."""
    reading.narrow(Objects(minimum=_count(value, location)))


def max_properties(reading: Reading, value: Json, location: str) -> None:
    """At most this many members."""
    reading.narrow(Objects(maximum=_count(value, location)))


def dependent_required(reading: Reading, value: Json, location: str) -> None:
    """The names that must be there if another name is."""
    if not isinstance(value, dict):
        fail("The value must be an object of arrays of names", location)
    for name, names in value.items():
        pointer = child(location, name)
        reading.depend(name, Option((), (Objects(required=(name, *_names(names, pointer))),)), pointer)


def dependent_schemas(reading: Reading, value: Json, location: str) -> None:
    """The schemas of the whole object that must hold if a name is there."""
    if not isinstance(value, dict):
        fail("The value must be an object of schemas", location)
    for name in value:
        pointer = child(location, name)
        reading.depend(name, Option((reading.subschema(pointer),), (Objects(required=(name,)),)), pointer)


def dependencies(reading: Reading, value: Json, location: str) -> None:
    """Draft-07's `dependentRequired` (arrays) and `dependentSchemas` (schemas) in one."""
    if not isinstance(value, dict):
        fail("The value must be an object", location)
    for name, needed in value.items():
        if isinstance(needed, str):
            needed = [needed]  # as draft-03 had it
        if isinstance(needed, list):
            pointer = child(location, name)
            reading.depend(name, Option((), (Objects(required=(name, *_names(needed, pointer))),)), pointer)
        else:
            dependent_schemas(reading, {name: needed}, location)


def additional_properties(reading: Reading, value: Json, location: str) -> None:
    """The schema of the members that ``properties`` does not name; without it they are free."""
    reading.additional = reading.goal(location)


def unevaluated_properties(reading: Reading, value: Json, location: str) -> None:
    """The schema of the members that neither a keyword beside it nor an in-place subschema that holds applies to."""
    reading.other_members = _others(reading, location)


def required(reading: Reading, value: Json, location: str) -> None:
    """The names that must be there."""
    if isinstance(value, bool):
        fail("required must be an array of names", location, "list the name in the required of the enclosing object")
    reading.narrow(Objects(required=tuple(dict.fromkeys(_names(value, location)))))


# In-place subschemas --------------------------------------------------------------------------------------------


def ref(reading: Reading, value: Json, location: str) -> None:
    """The schema at another place of this document; the keywords beside it hold as well."""
    if not isinstance(value, str):
        fail("The value must be a URI reference", location)
    reading.conjuncts.append(reading.subschema(reading.document.references.resolve(value, location)))


def dynamic_ref(reading: Reading, value: Json, location: str) -> None:
    """2020-12's `$ref` that means the first `$dynamicAnchor` of the name among the resources on the way here."""
    if not isinstance(value, str):
        fail("The value must be a URI reference", location)
    _check_dialect(reading, "2020-12", location)
    target = reading.document.references.resolve_dynamic(value, location, reading.scope)
    reading.conjuncts.append(reading.subschema(target))


def recursive_ref(reading: Reading, value: Json, location: str) -> None:
    """2019-09's `$ref` to the first resource with `$recursiveAnchor` on the way here."""
    if value != "#":
        fail("The value must be #", location)
    _check_dialect(reading, "2019-09", location)
    target = reading.document.references.resolve_recursive(location, reading.scope)
    reading.conjuncts.append(reading.subschema(target))


def _check_dialect(reading: Reading, dialect: str, location: str) -> None:
    if reading.dialect != dialect:
        raise UnsupportedSchema(
            f"{location.rpartition('/')[2]} belongs to {dialect}, but the schema is read as {reading.dialect}",
            location=location,
            hint="declare the dialect in $schema, or use $ref",
        )


def all_of(reading: Reading, value: Json, location: str) -> None:
    """All of the schemas hold."""
    reading.conjuncts.extend(map(reading.subschema, _listed(value, location)))


def _options(reading: Reading, value: Json, location: str) -> tuple[Option, ...]:
    return tuple(Option((reading.subschema(pointer),)) for pointer in _listed(value, location))


def any_of(reading: Reading, value: Json, location: str) -> None:
    """At least one of the schemas holds."""
    reading.unions.append(Union(_options(reading, value, location), location))


def one_of(reading: Reading, value: Json, location: str) -> None:
    """Exactly one of the schemas holds; where they are not provably disjoint, limits as for `not`."""
    reading.unions.append(Union(_options(reading, value, location), location, exclusive=True))


def not_(reading: Reading, value: Json, location: str) -> None:
    """The schema does not hold; an undeclared member that has to break it comes last, and can only be one."""
    reading.conjuncts.append(negated(reading.subschema(location)))


def if_(reading: Reading, value: Json, location: str) -> None:
    """Where the schema holds, that of `then` holds too, elsewhere that of `else`; limits as for `not`."""
    condition = reading.subschema(location)
    branches = [child(reading.pointer, keyword) for keyword in ("then", "else") if keyword in reading.schema]
    consequence, alternative = (
        (reading.subschema(place),) if place in branches else ()
        for place in (child(reading.pointer, "then"), child(reading.pointer, "else"))
    )
    if branches:
        options = (Option((condition, *consequence)), Option((negated(condition), *alternative)))
        reading.unions.append(Union(options, location))
    else:
        reading.asides.append(condition)


def then_or_else(reading: Reading, value: Json, location: str) -> None:
    """Read with `if`; without one it says nothing."""
    reading.subschema(location)


def identifier(reading: Reading, value: Json, location: str) -> None:
    """The identity of the schema; references inside are relative to it, and may be to it."""
    if not isinstance(value, str):
        fail("The value must be a URI reference", location)


def legacy_identifier(reading: Reading, value: Json, location: str) -> None:
    """Draft-04's spelling of ``$id``; also where no dialect is declared, but then not with references inside."""
    if reading.document.references.declares_dialect and reading.dialect != "draft-04":
        reading.pass_over("id", location)
    else:
        identifier(reading, value, location)


ASSERTIONS: dict[str, Callable[[Reading, Json, str], None]] = {
    "$id": identifier,
    "id": legacy_identifier,
    "$ref": ref,
    "$dynamicRef": dynamic_ref,
    "$recursiveRef": recursive_ref,
    "type": type_,
    "enum": enum,
    "const": const,
    "allOf": all_of,
    "anyOf": any_of,
    "oneOf": one_of,
    "not": not_,
    "if": if_,
    "then": then_or_else,
    "else": then_or_else,
    "minimum": minimum,
    "maximum": maximum,
    "exclusiveMinimum": exclusive_minimum,
    "exclusiveMaximum": exclusive_maximum,
    "multipleOf": multiple_of,
    "minLength": min_length,
    "maxLength": max_length,
    "pattern": pattern,
    "format": format_,
    "items": items,
    "prefixItems": prefix_items,
    "additionalItems": additional_items,
    "minItems": min_items,
    "maxItems": max_items,
    "contains": contains,
    "minContains": contains_bound,
    "maxContains": contains_bound,
    "uniqueItems": unique_items,
    "unevaluatedItems": unevaluated_items,
    "properties": properties,
    "required": required,
    "patternProperties": pattern_properties,
    "additionalProperties": additional_properties,
    "unevaluatedProperties": unevaluated_properties,
    "propertyNames": property_names,
    "minProperties": min_properties,
    "maxProperties": max_properties,
    "dependentRequired": dependent_required,
    "dependentSchemas": dependent_schemas,
    "dependencies": dependencies,
}
"""Every enforced keyword and the function that reads it; its docstring is its line in the support table."""
