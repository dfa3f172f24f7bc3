"""Kinds of constraint on the command line, apart from everything that is heavy to import."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What ``--kind`` takes."""

    GRAMMAR = "grammar"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    STRUCTURAL_TAG = "structural_tag"
