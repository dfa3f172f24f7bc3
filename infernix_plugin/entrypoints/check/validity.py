"""What an independent validator says of an instance, to tell an invalid value from another way to write a valid one."""

from __future__ import annotations

import json
import re
from typing import NoReturn


def schema_valid(schema: str, instance: bytes) -> bool | None:
    """Whether ``jsonschema`` finds the instance valid, as far as its format checks go.

    ``None`` if it is not installed, or cannot run the schema: patterns go to Python's ``re`` there.
    """
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing.exceptions import Unresolvable
    except ImportError:
        return None
    try:
        value = json.loads(instance, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    document = json.loads(schema)
    kind = validator_for(document, default=Draft202012Validator)
    try:
        return bool(kind(document, format_checker=kind.FORMAT_CHECKER).is_valid(value))
    except (re.error, RecursionError, Unresolvable):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
