"""Members of declared tools that would constrain their calls, but are misspelled, or called or placed otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infernix_plugin.entrypoints.ignored_fields import refuse_beside, refuse_ignored_members
from infernix_plugin.errors import ConflictingConstraints

PARAMETERS = "parameters"
"""What the schema of a function is called in Chat and Responses."""
INPUT_SCHEMA = "input_schema"
"""And in Messages."""

_SCHEMAS = (PARAMETERS, INPUT_SCHEMA, "inputSchema", "schema", "json_schema")
"""What APIs and protocols call it."""
_GRAMMAR = ("grammar", "definition", "syntax", "regex", "lark")
"""Of a custom tool's format."""


def refuse_ignored_in_tool(tool: Any, place: str) -> None:
    """Refuse members of a tool of Chat or Responses that would be ignored and constrain its calls.

    Raises:
        ConflictingConstraints: located by ``place`` and the member's name.
    """
    members = dict(tool)
    if members.get("function") is not None:
        beside = {name: value for name, value in members.items() if value}
        refuse_beside(beside, ("strict", *_SCHEMAS), place, "function")
        refuse_ignored_in_function(dict(members["function"]), f"{place}.function", PARAMETERS)
    match members.get("type"):
        case "function":
            refuse_ignored_in_function(members, place, PARAMETERS)
        case "custom":
            refuse_ignored_members(members, ("format",), place)
            refuse_beside(members, _GRAMMAR, place, "format")
        case "namespace":
            for index, inner in enumerate(members.get("tools") or ()):
                refuse_ignored_in_tool(inner, f"{place}.tools[{index}]")


def refuse_ignored_in_function(members: Mapping[str, Any], place: str, schema: str) -> None:
    """Refuse members of a function that would be ignored and constrain its calls.

    Args:
        members: of the function.
        place: of the function.
        schema: what its schema is called in this API.

    Raises:
        ConflictingConstraints: located by ``place`` and the member's name.
    """
    elsewhere = {name: schema for name in _SCHEMAS if name != schema}
    refuse_ignored_members(members, ("strict", schema), place, elsewhere)
    stated = members.get(schema)
    if isinstance(stated, Mapping) and stated.get("strict") is True and members.get("strict") is not True:
        raise ConflictingConstraints(
            f"strict inside {schema} would be ignored.",
            location=f"{place}.{schema}.strict",
            hint=f"It belongs beside {schema}.",
        )
