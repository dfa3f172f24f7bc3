"""Keywords for objects and their members."""

from __future__ import annotations

from infernix_plugin.grammar.json_schema.json_value import Json, child
from infernix_plugin.grammar.json_schema.keywords.operands import count, names_in, pattern_in, text
from infernix_plugin.grammar.json_schema.keywords.reading import Option, Reading
from infernix_plugin.grammar.json_schema.reader import fail
from infernix_plugin.grammar.json_schema.shape import Objects


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
        reading.patterns.append((pattern_in(source, reading.options, pointer), reading.goal(pointer)))


def property_names(reading: Reading, value: Json, location: str) -> None:
    """What every name must satisfy, as a string."""
    reading.narrow(Objects(naming=reading.goal(location)))


def min_properties(reading: Reading, value: Json, location: str) -> None:
    """At least this many members; if more than one has to have an undeclared name, that is refused."""
    reading.narrow(Objects(minimum=count(value, location)))


def max_properties(reading: Reading, value: Json, location: str) -> None:
    """At most this many members."""
    reading.narrow(Objects(maximum=count(value, location)))


def dependent_required(reading: Reading, value: Json, location: str) -> None:
    """The names that must be there if another name is."""
    if not isinstance(value, dict):
        fail("The value must be an object of arrays of names", location)
    for name, names in value.items():
        pointer = child(location, name)
        reading.depend(name, Option((), (Objects(required=(name, *names_in(names, pointer))),)), pointer)


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
            reading.depend(name, Option((), (Objects(required=(name, *names_in(needed, pointer))),)), pointer)
        else:
            dependent_schemas(reading, {name: needed}, location)


def additional_properties(reading: Reading, value: Json, location: str) -> None:
    """The schema of the members that ``properties`` does not name; without it they are free."""
    reading.additional = reading.goal(location)


def unevaluated_properties(reading: Reading, value: Json, location: str) -> None:
    """The schema of the members that neither a keyword beside it nor an in-place subschema that holds applies to."""
    reading.other_members = reading.unevaluated(location)


def required(reading: Reading, value: Json, location: str) -> None:
    """The names that must be there."""
    if isinstance(value, bool):
        fail("required must be an array of names", location, "list the name in the required of the enclosing object")
    reading.narrow(Objects(required=tuple(dict.fromkeys(names_in(value, location)))))
