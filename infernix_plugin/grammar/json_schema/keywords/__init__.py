"""One small function per JSON Schema keyword, and the table of them, which is also the documentation of the support.

A function takes the :class:`Reading` of the schema object that its keyword stands in, the keyword's value and its
pointer, and narrows the reading. It never looks into a subschema: it only notes where that is.
"""

from __future__ import annotations

from infernix_plugin.grammar.json_schema.keywords import any_type, arrays, in_place, numeric, objects, textual
from infernix_plugin.grammar.json_schema.keywords.reading import Assertions, Option, Reading, Union
from infernix_plugin.grammar.json_schema.reader import Document
from infernix_plugin.grammar.options import GrammarOptions

__all__ = ["ASSERTIONS", "Option", "Reading", "Union", "read"]

ASSERTIONS: Assertions = {
    "$id": in_place.identifier,
    "id": in_place.legacy_identifier,
    "$ref": in_place.ref,
    "$dynamicRef": in_place.dynamic_ref,
    "$recursiveRef": in_place.recursive_ref,
    "type": any_type.type_,
    "enum": any_type.enum,
    "const": any_type.const,
    "allOf": in_place.all_of,
    "anyOf": in_place.any_of,
    "oneOf": in_place.one_of,
    "not": in_place.not_,
    "if": in_place.if_,
    "then": in_place.then_or_else,
    "else": in_place.then_or_else,
    "minimum": numeric.minimum,
    "maximum": numeric.maximum,
    "exclusiveMinimum": numeric.exclusive_minimum,
    "exclusiveMaximum": numeric.exclusive_maximum,
    "multipleOf": numeric.multiple_of,
    "minLength": textual.min_length,
    "maxLength": textual.max_length,
    "pattern": textual.pattern,
    "format": textual.format_,
    "items": arrays.items,
    "prefixItems": arrays.prefix_items,
    "additionalItems": arrays.additional_items,
    "minItems": arrays.min_items,
    "maxItems": arrays.max_items,
    "contains": arrays.contains,
    "minContains": arrays.contains_bound,
    "maxContains": arrays.contains_bound,
    "uniqueItems": arrays.unique_items,
    "unevaluatedItems": arrays.unevaluated_items,
    "properties": objects.properties,
    "required": objects.required,
    "patternProperties": objects.pattern_properties,
    "additionalProperties": objects.additional_properties,
    "unevaluatedProperties": objects.unevaluated_properties,
    "propertyNames": objects.property_names,
    "minProperties": objects.min_properties,
    "maxProperties": objects.max_properties,
    "dependentRequired": objects.dependent_required,
    "dependentSchemas": objects.dependent_schemas,
    "dependencies": objects.dependencies,
}
"""Every enforced keyword and the function that reads it; its docstring is its line in the support table."""


def read(document: Document, place: str, options: GrammarOptions) -> Reading:
    """The reading of the schema object at ``place``.

    Raises:
        InvalidSchema: a keyword has a value it cannot have.
        UnsupportedSchema: an assertion that is not enforced, or an unknown keyword.
    """
    return Reading(document, place, options, ASSERTIONS)
