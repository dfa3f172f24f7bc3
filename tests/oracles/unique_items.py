"""Whether a text repeats an item where its grammar forbids it: on the whole decoded value, by the validator."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.places import UNWATCHED, Place

_UNIQUE = Draft202012Validator({"uniqueItems": True})


def keeps_items_apart(grammar: Grammar, text: str) -> bool:
    """``False`` if some array that must not repeats an item; texts that are not JSON repeat nothing."""
    if grammar.unique is None:
        return True
    try:
        value = as_floats(text)
    except ValueError:
        return True
    return not repeats(grammar.unique.places, value)


def as_floats(text: str) -> Any:
    """The decoded text, with all numbers as binary64."""
    return json.loads(text, parse_int=float)


def repeats(places: tuple[Place, ...], value: Any, index: int = 0) -> bool:
    """Whether an array repeats an item, given that the value stands at the place of this index."""
    if index == UNWATCHED or not isinstance(value, list | dict):
        return False
    place = places[index]
    if isinstance(value, dict):
        return any(repeats(places, part, place.member(name)) for name, part in value.items())
    if place.unique and not _UNIQUE.is_valid(value):
        return True
    return any(repeats(places, part, place.item(number)) for number, part in enumerate(value))
