"""Where a fault of a tool is in the request that the client sent."""

from __future__ import annotations

import copy
import re
from typing import Any, TypeVar

from infernix_plugin.entrypoints.origin import Origin, origin_of
from infernix_plugin.errors import ConstraintError, InfernixError

Error = TypeVar("Error", bound=InfernixError)

_TOOL = re.compile(r"tools\[(\d+)\]\.(name|parameters|format(?!\.))")


def located(error: Error, request: Any) -> Error:
    """Return the error with the place of a tool as the request names it; other errors as they are.

    The contract counts the functions; a request of Responses may hold some of them in namespaces.
    """
    location = (error.location or "") if isinstance(error, ConstraintError) else ""
    found = _TOOL.match(location)
    if not found:
        return error
    moved = copy.copy(error)
    assert isinstance(moved, ConstraintError)
    path, member = _paths(request.tools)[int(found[1])], found[2]
    if member == "format":
        member = "format.definition"
    if origin_of(request) is Origin.MESSAGES:
        path = path.removesuffix(".function")
        member = {"parameters": "input_schema"}.get(member, member)
    moved.location = f"{path}.{member}{location[found.end() :]}"
    return moved


def _paths(tools: list[Any]) -> list[str]:
    """The path of every function, in the order of the contract."""
    found: list[str] = []
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        match tool.type:
            case "namespace":
                inner = (at for at, one in enumerate(tool.tools) if one.type == "function")
                found.extend(f"{path}.tools[{at}]" for at in inner)
            case "function":
                found.append(f"{path}.function" if hasattr(tool, "function") else path)
            case "custom":
                found.append(path)
    return found
