"""An output with tools as vLLM carries it: one JSON text in the field for structural tags, under a type of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint

TYPE = "infernix_tool_output"
KIND = "tools"
"""The observed kind of an output whose content is free."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A contract, and what an answer that is no call has to be; ``None`` for free text."""

    contract: ToolContract
    content: OutputConstraint | None = None

    def text(self) -> str:
        """Return the JSON text that :func:`read` reads."""
        contract, content = self.contract, self.content
        return json.dumps(
            {
                "type": TYPE,
                "tools": [[tool.name, tool.parameters, tool.strict] for tool in contract.tools],
                "choice": contract.choice,
                "allowed": None if contract.allowed is None else sorted(contract.allowed),
                "parallel": contract.parallel,
                "basic": contract.basic,
                "content": None if content is None else [content.kind, content.source, content.choices],
            },
            ensure_ascii=False,
        )


def read(document: dict[str, Any]) -> ToolOutput:
    """Return what :meth:`ToolOutput.text` wrote, decoded.

    Raises:
        ConflictingConstraints: the contract contradicts itself.
    """
    content = document["content"]
    return ToolOutput(
        ToolContract(
            tuple(Tool(*fields) for fields in document["tools"]),
            CallChoice(document["choice"]),
            None if document["allowed"] is None else frozenset(document["allowed"]),
            document["parallel"],
            document["basic"],
        ),
        None if content is None else OutputConstraint(ConstraintKind(content[0]), content[1], tuple(content[2])),
    )
