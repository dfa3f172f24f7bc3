"""Options and limits of the language side. Immutable and hashable: they are part of a compiled grammar's identity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """How constraints are read, and how large they may be.

    Sizes are in UTF-8 bytes of the source, depths and counts in items. Passing a limit raises
    :class:`~infernix_plugin.errors.ConstraintTooLarge`, which names the limit and the value.
    """

    max_whitespace: int = 32
    """Longest run of insignificant whitespace between two JSON tokens."""
    max_number_digits: int = 17
    """Most significant digits of an unbounded JSON number (binary64); a fraction of ``0.`` may have six zeros more in
    front of them."""
    unknown_keywords: str = "refuse"
    """What an unknown JSON Schema keyword does: ``"refuse"`` or ``"ignore"``."""

    max_grammar_bytes: int = 1 << 20
    max_schema_bytes: int = 1 << 20
    max_regex_bytes: int = 64 << 10
    max_choices: int = 100_000
    max_choice_bytes: int = 16 << 20
    max_nesting: int = 256
    """Deepest nesting of a schema, a group or a grammar expression."""
    max_repetition: int = 1 << 20
    """Largest count in a repetition, a string length or an array length."""
    max_nodes: int = 1 << 20
    """Largest number of grammar nodes one constraint may lower to."""

    max_intersections: int = 16384
    """Most alternatives of a schema that are intersected with each other."""
    max_name_classes: int = 64
    """Most classes of names that the patterns of one object's members tell apart."""
    max_string_states: int = 16384
    """Most states of the patterns, formats and lengths of one string together."""
    max_count_states: int = 2048
    """Most cases that ``contains`` and the length of an array have together."""

    max_mask_seconds: float = 0.02
    """Processor time that a mask may take on average over a request."""
    max_excess_seconds: float = 0.1
    """Processor time that all masks of one request together may take beyond that."""
