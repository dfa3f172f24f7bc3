"""The fields that an API has, told from what a client sends beyond them: vLLM keeps both as attributes."""

from __future__ import annotations

from typing import Any


def declared(request: Any, name: str, default: Any = None) -> Any:
    """Return a field of a request, or of ``SamplingParams``; ``default`` where its API has no such field."""
    fields = getattr(type(request), "model_fields", None)
    return default if fields is not None and name not in fields else getattr(request, name, default)
