"""What vLLM's own fields cannot say of an output: tools beside the content, text that is already written, no framing.

vLLM carries it as one JSON text in the field for structural tags, under a type of our own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint

TYPE = "infernix_framed_output"
_FOREIGN = f"A structural tag of the type {TYPE} can only be what this plugin writes."
TOOLS = "tools"
"""The observed kind of an output with tools and free content."""


@dataclass(frozen=True, slots=True)
class FramedOutput:
    """An output with at least one of the three.

    Attributes:
        contract: of the tools; ``None`` without tools.
        content: what an answer that is no call has to be; ``None`` for free text.
        prefix: content that the prompt ends with, and that counts as written.
        raw: whether all new text is content, whatever the prompt ends with.
    """

    contract: ToolContract | None
    content: OutputConstraint | None = None
    prefix: str = ""
    raw: bool = False

    @property
    def has_calls(self) -> bool:
        """Whether the grammar is one of calls, or of the lack of them, and not the content's alone."""
        return self.contract is not None and (self.content is None or self.contract.choice is not CallChoice.NONE)

    def text(self) -> str:
        """Return the JSON text that :func:`read` reads."""
        contract, content = self.contract, self.content
        return json.dumps(
            {
                "type": TYPE,
                "contract": None if contract is None else _written(contract),
                "content": _constraint(content),
                "prefix": self.prefix,
                "raw": self.raw,
            },
            ensure_ascii=False,
        )


def read(text: str) -> FramedOutput | None:
    """Return what :meth:`FramedOutput.text` wrote; ``None`` if the text is of another type.

    Raises:
        ConflictingConstraints: the contract contradicts itself.
        InvalidGrammar: it is of this type and was not written there.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("type") != TYPE:
        return None
    try:
        contract, content = document["contract"], document["content"]
        framed = FramedOutput(
            None if contract is None else _contract(contract),
            _read_constraint(content),
            document["prefix"],
            document["raw"],
        )
        if _is_typed(framed):
            return framed
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidGrammar(_FOREIGN) from error
    raise InvalidGrammar(_FOREIGN)


def _is_typed(framed: FramedOutput) -> bool:
    """Whether the values that nothing else looks at are of their types."""
    contract = framed.contract
    tools = () if contract is None else contract.tools
    texts = [framed.prefix, *(tool.name for tool in tools), *(tool.parameters or "" for tool in tools)]
    for constraint in (framed.content, *(tool.text for tool in tools)):
        texts += [] if constraint is None else [constraint.source, *constraint.choices]
    flags = [framed.raw, *(tool.strict for tool in tools)]
    flags += [] if contract is None else [contract.parallel, contract.basic]
    return all(isinstance(text, str) for text in texts) and all(isinstance(flag, bool) for flag in flags)


def _written(contract: ToolContract) -> dict[str, Any]:
    return {
        "tools": [[tool.name, tool.parameters, tool.strict, _constraint(tool.text)] for tool in contract.tools],
        "choice": contract.choice,
        "allowed": None if contract.allowed is None else sorted(contract.allowed),
        "parallel": contract.parallel,
        "basic": contract.basic,
    }


def _contract(written: dict[str, Any]) -> ToolContract:
    return ToolContract(
        tuple(Tool(name, schema, strict, _read_constraint(text)) for name, schema, strict, text in written["tools"]),
        CallChoice(written["choice"]),
        None if written["allowed"] is None else frozenset(written["allowed"]),
        written["parallel"],
        written["basic"],
    )


def _constraint(constraint: OutputConstraint | None) -> list[Any] | None:
    return None if constraint is None else [constraint.kind, constraint.source, constraint.choices]


def _read_constraint(written: list[Any] | None) -> OutputConstraint | None:
    return None if written is None else OutputConstraint(ConstraintKind(written[0]), written[1], tuple(written[2]))
