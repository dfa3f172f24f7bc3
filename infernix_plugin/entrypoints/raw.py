"""Completions: the prompt is raw text or tokens, so a constraint is one of all new text, reasoning or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from infernix_plugin.entrypoints.carrier import carrying
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import Asked


def is_raw(request: Any) -> bool:
    """Return whether the prompt of a request is no conversation."""
    return hasattr(request, "prompt") and not hasattr(request, "input")  # Responses has a prompt of another kind


def over_all_text(request: Any, asked: Asked) -> Asked:
    """Return what is asked of an output that is content from its first token on, and keep it in the request."""
    framed: FramedOutput | StructuralTag
    match asked:
        case OutputConstraint():
            framed = FramedOutput(None, asked, raw=True)
            carried = framed.text()
        case StructuralTag():
            framed = replace(asked, raw=True)
            carried = framed.carried()
        case FramedOutput():
            return asked
    request.structured_outputs = carrying(carried)
    request.response_format = None
    return framed
