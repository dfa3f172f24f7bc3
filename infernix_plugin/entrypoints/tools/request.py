"""The tool contract of a request (Chat, Responses; Messages reach us as Chat)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from infernix_plugin.entrypoints.origin import Origin, origin_of
from infernix_plugin.entrypoints.tools.allowed import allowed_names
from infernix_plugin.errors import ConflictingConstraints
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar import lark
from infernix_plugin.grammar.constraint import OutputConstraint


def contract_of(request: Any, *, basic: bool) -> ToolContract | None:
    """Return the contract of a request, ``None`` if it has no tools.

    Args:
        request: a chat or Responses request.
        basic: whether calls keep their form even where the request does not ask for it.

    Raises:
        ConflictingConstraints: the tools contradict each other or the choice; located as ``tools[i].name`` or
            ``tool_choice``.
    """
    tools = _tools(request.tools or [])
    if not tools:
        return None
    choice, allowed = _choice(request.tool_choice)
    allowed = allowed_names(request) or allowed
    named = getattr(request.tool_choice, "type", "") in ("function", "custom")
    named = named and origin_of(request) is Origin.CHAT
    parallel = request.parallel_tool_calls is not False
    if named and "parallel_tool_calls" not in request.model_fields_set:
        parallel = False  # OpenAI's named choice is one call unless the client says otherwise
    return ToolContract(tuple(tools), choice, allowed, parallel, basic)


def _tools(declared: Sequence[Any]) -> list[Tool]:
    from vllm.tool_parsers.utils import get_function_tools

    texts = {tool.name: _text(tool.format, index) for index, tool in enumerate(declared) if has_grammar(tool)}
    functions = [getattr(tool, "function", tool) for tool in get_function_tools(declared)]
    return [
        Tool(
            function.name,
            None if function.parameters is None else json.dumps(function.parameters, ensure_ascii=False),
            bool(getattr(function, "strict", False)) or function.name in texts,
            texts.get(function.name),
        )
        for function in functions
    ]


def has_grammar(tool: Any) -> bool:
    """Return whether a declared tool is a custom one of Responses with a grammar."""
    return getattr(tool, "type", "") == "custom" and getattr(tool.format, "type", "") == "grammar"


def _text(form: Any, index: int) -> OutputConstraint:
    if form.syntax == "regex":
        return OutputConstraint.regex(form.definition)
    if not lark.looks_like_lark(form.definition):
        raise ConflictingConstraints("The definition is no Lark grammar.", location=f"tools[{index}].format.definition")
    return OutputConstraint.grammar(form.definition)


def _choice(choice: Any) -> tuple[CallChoice, frozenset[str] | None]:
    if choice is None or isinstance(choice, str):
        try:
            return CallChoice(choice or "auto"), None
        except ValueError:
            raise ConflictingConstraints(f"tool_choice {choice!r} is not known.", location="tool_choice") from None
    kind = getattr(choice, "type", "")
    if kind == "allowed_tools":
        names = (_name_of(tool) for tool in choice.tools)
        return CallChoice(choice.mode), frozenset(name for name in names if name)
    name = _name_of(choice)
    if kind in ("function", "custom") and name:
        return CallChoice.REQUIRED, frozenset([name])
    raise ConflictingConstraints(f"tool_choice of the type {kind!r} is not supported.", location="tool_choice")


def _name_of(choice: Any) -> str | None:
    """The function that a choice names: of an object or a decoded one, in Chat's form or in that of Responses."""
    holder = choice if isinstance(choice, dict) else dict(choice)
    function = holder.get("function")
    if function is None:
        return holder.get("name")
    return function.get("name") if isinstance(function, dict) else getattr(function, "name", None)
