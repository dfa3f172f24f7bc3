"""Which JSON Schema keyword a refusal is about."""

from __future__ import annotations

import re

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.json_schema import vocabulary
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value maps names to schemas, so that the next segment of a pointer is a name."""
_BY_INDEX = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_KNOWN = frozenset((*ASSERTIONS, *vocabulary.ANNOTATIONS, *vocabulary.STRUCTURE, *vocabulary.REFUSED))


def keyword_of(error: ConstraintError) -> str | None:
    """The keyword that the error's pointer leads to, or else the one that its message names."""
    if error.location is None or not error.location.startswith("#"):
        return None
    return _at_pointer(error.location) or _in_message(error.message)


def _at_pointer(pointer: str) -> str | None:
    segments = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    keyword: str | None = None
    skip = False
    for segment in segments:
        if skip or (keyword in {"items", *_BY_INDEX} and segment.isdecimal()):
            keyword, skip = None, False
            continue
        keyword = segment
        skip = segment in _BY_NAME
    return keyword


def _in_message(message: str) -> str | None:
    return next((word for word in re.findall(r"[$\w]+", message) if word in _KNOWN and not word.islower()), None)
