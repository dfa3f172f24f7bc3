"""Exact constrained decoding and exact speculation for vLLM.

The public names are imported on first use: importing this package imports none of vLLM, torch, transformers
and xgrammar.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infernix_plugin.errors import ConflictingConstraints as ConflictingConstraints
    from infernix_plugin.errors import ConstraintDeadEnd as ConstraintDeadEnd
    from infernix_plugin.errors import ConstraintError as ConstraintError
    from infernix_plugin.errors import ConstraintTooLarge as ConstraintTooLarge
    from infernix_plugin.errors import InvalidChoice as InvalidChoice
    from infernix_plugin.errors import InvalidContinuation as InvalidContinuation
    from infernix_plugin.errors import InvalidGrammar as InvalidGrammar
    from infernix_plugin.errors import InvalidRegex as InvalidRegex
    from infernix_plugin.errors import InvalidSchema as InvalidSchema
    from infernix_plugin.errors import NonFiniteLogits as NonFiniteLogits
    from infernix_plugin.errors import UnsatisfiableConstraint as UnsatisfiableConstraint
    from infernix_plugin.errors import UnsupportedSchema as UnsupportedSchema
    from infernix_plugin.grammar.constraint import OutputConstraint as OutputConstraint
    from infernix_plugin.grammar.options import GrammarOptions as GrammarOptions
    from infernix_plugin.matching import CompiledGrammar as CompiledGrammar
    from infernix_plugin.matching import ConstraintCompiler as ConstraintCompiler
    from infernix_plugin.matching import MaskState as MaskState
    from infernix_plugin.matching import Session as Session
    from infernix_plugin.matching import TokenDomain as TokenDomain

_HOMES = {
    "OutputConstraint": "infernix_plugin.grammar.constraint",
    "GrammarOptions": "infernix_plugin.grammar.options",
    "CompiledGrammar": "infernix_plugin.matching",
    "ConstraintCompiler": "infernix_plugin.matching",
    "MaskState": "infernix_plugin.matching",
    "Session": "infernix_plugin.matching",
    "TokenDomain": "infernix_plugin.matching",
    **dict.fromkeys(
        (
            "ConflictingConstraints",
            "ConstraintDeadEnd",
            "ConstraintError",
            "ConstraintTooLarge",
            "InvalidChoice",
            "InvalidContinuation",
            "InvalidGrammar",
            "InvalidRegex",
            "InvalidSchema",
            "NonFiniteLogits",
            "UnsatisfiableConstraint",
            "UnsupportedSchema",
        ),
        "infernix_plugin.errors",
    ),
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
