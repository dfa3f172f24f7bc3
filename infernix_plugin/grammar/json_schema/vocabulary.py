"""The keywords that assert nothing, and the assertions that are known but not enforced."""

from __future__ import annotations

from collections.abc import Mapping

ANNOTATIONS: Mapping[str, str] = dict.fromkeys(
    ["title", "description", "default", "examples", "$comment", "readOnly", "writeOnly", "deprecated"],
    "describes the value",
) | dict.fromkeys(
    ["contentEncoding", "contentMediaType", "contentSchema"],
    "describes what a string holds; JSON Schema 2020-12 does not assert it",
)

STRUCTURE: Mapping[str, str] = {
    "$schema": "names the dialect; read from the root and from schemas with an $id",
    "$defs": "a place for $ref to point to",
    "definitions": "a place for $ref to point to",
    "$anchor": "a name for a place for $ref to point to",
    "$dynamicAnchor": "a name for a place for $ref and $dynamicRef to point to",
    "$recursiveAnchor": "makes a resource one for $recursiveRef to point to",
}

REFUSED: Mapping[str, str] = {
    "$vocabulary": "custom vocabularies are not supported",
    "extends": "use allOf",
    "disallow": "list the allowed types in type",
    "divisibleBy": "use multipleOf",
}


def is_annotation(keyword: str) -> bool:
    """Whether the keyword may be passed over without changing which values are valid.

    Names with a leading underscore are how authors switch a keyword off, and how tools keep private notes.
    """
    return keyword in ANNOTATIONS or keyword in STRUCTURE or keyword.startswith(("x-", "_"))
