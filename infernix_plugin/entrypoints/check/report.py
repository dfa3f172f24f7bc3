"""What a check found, as data. Field names are the keys of ``--json`` and stay as they are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from infernix_plugin.entrypoints.check.instance import Refusal
from infernix_plugin.entrypoints.check.keyword import keyword_of
from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.ir import Remark


@dataclass(frozen=True)
class Problem:
    """A :class:`~infernix_plugin.errors.ConstraintError`.

    ``keyword`` is one of a JSON Schema, or a member of a structural tag; other kinds have none.
    """

    type: str
    message: str
    location: str | None
    keyword: str | None
    hint: str | None


def problem_of(error: ConstraintError) -> Problem:
    """The error as data."""
    return Problem(type(error).__name__, error.message, error.location, keyword_of(error), error.hint)


@dataclass(frozen=True)
class InstanceReport:
    """What became of the instance."""

    accepted: bool
    bytes: int
    """Size of the instance, without the line end that :attr:`line_end_dropped` tells of."""
    line_end_dropped: bool
    """Whether one line end at the end of the file was taken as the file's, because with it the instance is refused."""
    schema_valid: bool | None
    """What ``jsonschema`` says of it; ``None`` if that is not installed, or the constraint is not a schema."""
    allowed_spelling: str | None
    """For a refused instance of a schema: a compact text of the same value that is allowed, if one was found."""
    refusal: Refusal | None
    error: Problem | None
    """Set if the engine gave up on the instance; then it is neither accepted nor refused at a place."""


@dataclass(frozen=True)
class Report:
    """What became of the constraint. What is not known for a refused one is ``None``."""

    kind: str
    tokenizer: str
    vocab_size: int
    supported: bool
    error: Problem | None = None
    engine: str | None = None
    compile_seconds: float | None = None
    memory_bytes: int | None = None
    first_tokens: int | None = None
    """How many tokens may come first, stop tokens not counted."""
    may_be_empty: bool | None = None
    warnings: tuple[Remark, ...] | None = None
    """Rules of a grammar that add nothing to its language."""
    grammar: str | None = None
    """Only with ``--show-grammar``."""
    instance: InstanceReport | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was refused."""
        return self.supported and (self.instance is None or self.instance.accepted)

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=True)
