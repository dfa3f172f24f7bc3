"""The rewritten constraint of a request, and how it is told from what a client wrote in its place.

A request is rewritten where it is rendered, and some are rendered again for their next turn.
"""

from __future__ import annotations

import json
from typing import Any

from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.errors import ConflictingConstraints
from infernix_plugin.structured_output.record import KEY
from infernix_plugin.structured_output.translation import BACKEND


def carrying(text: str) -> StructuredOutputsParams:
    """Return the params of a request whose constraint the server wrote, as a structural tag in JSON text."""
    params = StructuredOutputsParams(structural_tag=text)
    params._backend = BACKEND  # no client can set it
    return params


def refuse_reserved_tags(request: Any) -> None:
    """Refuse a client's structural tag that says what only the server says of itself.

    Raises:
        ConflictingConstraints: located by the field.
    """
    params: Any = declared(request, "structured_outputs")
    text = getattr(params, "structural_tag", None)
    if isinstance(text, str) and params._backend is None and any(map(_is_reserved, _names_in(text))):
        raise _reserved("structured_outputs.structural_tag")
    if any(map(_is_reserved, getattr(declared(request, "response_format"), "model_extra", None) or ())):
        raise _reserved("response_format")


def _names_in(text: str) -> list[str]:
    """The type and the members of a tag; of what cannot be read none, it is refused later."""
    try:
        tag = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [*tag, str(tag.get("type"))] if isinstance(tag, dict) else []


def _is_reserved(name: str) -> bool:
    return name.lower().startswith(KEY)


def _reserved(place: str) -> ConflictingConstraints:
    return ConflictingConstraints(f"Names in a structural tag that begin with {KEY!r} are reserved.", location=place)
