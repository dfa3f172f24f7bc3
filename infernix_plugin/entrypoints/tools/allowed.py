"""Chat's ``tool_choice`` of the type ``allowed_tools``, which vLLM's request does not know."""

from __future__ import annotations

from typing import Any

from vllm.exceptions import VLLMValidationError

KEY = "infernix_allowed_tools"
MODES = ("auto", "required")
_FORM = (
    'tool_choice must be {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", '
    '"tools": [{"type": "function", "function": {"name": ...}}, ...]}}'
)


def without_allowed_tools(data: Any) -> Any:
    """Return a decoded chat request that says by its mode what it said by ``allowed_tools``; the names stand apart.

    Raises:
        VLLMValidationError: the choice has another form; becomes an HTTP 400.
    """
    choice = data.get("tool_choice") if isinstance(data, dict) else None
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return data
    try:
        allowed = choice["allowed_tools"]
        names = frozenset(tool["function"]["name"] for tool in allowed["tools"])
        mode = allowed["mode"]
    except (KeyError, TypeError):
        raise VLLMValidationError(_FORM, parameter="tool_choice.allowed_tools") from None
    if mode not in MODES or not names or not all(isinstance(name, str) for name in names):
        raise VLLMValidationError(_FORM, parameter="tool_choice.allowed_tools")
    return {**data, "tool_choice": mode, KEY: names}


def allowed_names(request: Any) -> frozenset[str] | None:
    """Return the names that stand apart. A client cannot send them: no JSON text is decoded to a frozenset."""
    found = (getattr(request, "model_extra", None) or {}).get(KEY)
    return found if isinstance(found, frozenset) else None
