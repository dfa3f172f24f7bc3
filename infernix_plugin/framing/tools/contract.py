"""What a request says about its tools: which there are, and which calls it allows, asks for or forbids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from infernix_plugin.errors import ConflictingConstraints, excerpt
from infernix_plugin.grammar.constraint import OutputConstraint

UNNAMEABLE = ">\n"
"""Characters that end a name in the written form of a call."""


class CallChoice(StrEnum):
    """Whether the output has calls."""

    AUTO = "auto"
    """None, or any number of them after ordinary text."""
    NONE = "none"
    REQUIRED = "required"
    """At least one, and nothing else."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One declared function.

    ``parameters`` is the JSON Schema of its arguments as text in declared order, ``None`` for a function without any.
    A ``strict`` function gets arguments that satisfy it; for any other it only says how values are to be read.
    ``text`` is of a custom tool with a grammar: what the text in its one argument has to be; it is strict.
    """

    name: str
    parameters: str | None = None
    strict: bool = False
    text: OutputConstraint | None = None


@dataclass(frozen=True, slots=True)
class ToolContract:
    """The tools of one request and its policy; hashable, and made only of values that the request states.

    Attributes:
        tools: every declared tool, in order.
        choice: whether the output has calls.
        allowed: the names that may be called, ``None`` for all.
        parallel: whether there may be more than one call.
        basic: whether calls keep their form and their names even where nothing asks for it.
    """

    tools: tuple[Tool, ...]
    choice: CallChoice = CallChoice.AUTO
    allowed: frozenset[str] | None = None
    parallel: bool = True
    basic: bool = True

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ConflictingConstraints: located as ``tools[i].name``, or as ``tool_choice``.
        """
        _check_names([tool.name for tool in self.tools])
        unknown = (self.allowed or frozenset()) - {tool.name for tool in self.tools}
        if unknown:
            raise ConflictingConstraints(
                f"The tool {excerpt(min(unknown))} that may be called is not among the tools", location="tool_choice"
            )
        if self.choice is CallChoice.REQUIRED and not self.offered:
            raise ConflictingConstraints("A call is required, but there is no tool to call", location="tool_choice")

    @property
    def offered(self) -> tuple[tuple[int, Tool], ...]:
        """The tools that may be called, with their positions among the declared ones."""
        if self.choice is CallChoice.NONE:
            return ()
        return tuple(
            (index, tool) for index, tool in enumerate(self.tools) if self.allowed is None or tool.name in self.allowed
        )

    @property
    def demands(self) -> bool:
        """Whether the request itself asks for something that free text does not keep."""
        return (
            self.choice is not CallChoice.AUTO
            or self.allowed is not None
            or not self.parallel
            or any(tool.strict for _, tool in self.offered)
        )

    @property
    def is_enforced(self) -> bool:
        """Whether the output is constrained by this contract."""
        return bool(self.tools) and (self.basic or self.demands)

    def identity(self) -> ToolContract:
        """The contract without what makes no difference to the language: types that are only read by."""
        return replace(
            self,
            tools=tuple(
                tool if tool.strict else replace(tool, parameters=tool.parameters and "{}") for tool in self.tools
            ),
        )


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        place = f"tools[{index}].name"
        if not name or any(char in name for char in UNNAMEABLE) or not _is_text(name):
            raise ConflictingConstraints(
                f"The name {excerpt(name)} of a tool is empty or holds a line break, {'>'!r} or half a character",
                location=place,
            )
        if name in seen:
            raise ConflictingConstraints(f"There are two tools of the name {excerpt(name)}", location=place)
        seen.add(name)


def _is_text(name: str) -> bool:
    """Whether it holds no lone surrogate, which no output can spell."""
    return name.encode("utf-8", "ignore").decode() == name
