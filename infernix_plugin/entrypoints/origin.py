"""Where a chat request really comes from: vLLM turns requests of the Messages API into chat requests."""

from __future__ import annotations

from enum import Enum
from typing import Any

_KEY = "infernix_origin"


class Origin(Enum):
    """A use of a chat request. No JSON text can be decoded to one, so no client can claim it."""

    CHAT = "chat"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    """The Messages API's counting of a prompt: nothing will be generated."""


def mark_origin(request: Any, origin: Origin) -> None:
    """Note where a chat request comes from."""
    request.model_extra[_KEY] = origin


def origin_of(request: Any) -> Origin:
    """Return what :func:`mark_origin` noted; every other request speaks for itself."""
    found = (getattr(request, "model_extra", None) or {}).get(_KEY)
    return found if isinstance(found, Origin) else Origin.CHAT
