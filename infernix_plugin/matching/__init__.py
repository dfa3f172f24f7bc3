"""The token domain, the constraint compiler and the per-request session."""

from infernix_plugin.matching.cache import CacheStats, Outcome
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.compiler import ConstraintCompiler, Preparation
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.session import MaskState, Session, SessionCounters

__all__ = [
    "CacheStats",
    "CompiledGrammar",
    "ConstraintCompiler",
    "MaskState",
    "Outcome",
    "Preparation",
    "Session",
    "SessionCounters",
    "TokenClass",
    "TokenDomain",
]
