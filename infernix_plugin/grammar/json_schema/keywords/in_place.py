"""Keywords whose subschemas are about the same value, references among them, and the identity of a schema."""

from __future__ import annotations

from infernix_plugin.errors import UnsupportedSchema
from infernix_plugin.grammar.json_schema.json_value import Json, child
from infernix_plugin.grammar.json_schema.keywords.operands import schemas_in
from infernix_plugin.grammar.json_schema.keywords.reading import Option, Reading, Union
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import negated


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
    reading.conjuncts.extend(map(reading.subschema, schemas_in(value, location)))


def _options(reading: Reading, value: Json, location: str) -> tuple[Option, ...]:
    return tuple(Option((reading.subschema(pointer),)) for pointer in schemas_in(value, location))


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
