"""Before a prompt is rendered: the tools of a request and its content constraint become one constraint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infernix_plugin.entrypoints.carrier import carrying
from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.entrypoints.options import check_display, check_sampling
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.entrypoints.tools.places import located
from infernix_plugin.entrypoints.tools.request import contract_of
from infernix_plugin.errors import ConflictingConstraints, ConstraintError
from infernix_plugin.framing.tools.contract import CallChoice, ToolContract
from infernix_plugin.matching import TokenDomain
from infernix_plugin.settings import Settings
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import asked_of


def join_tools(request: Any, domain: TokenDomain, settings: Settings) -> None:
    """Replace the content constraint of a chat or Responses request by one that knows its tools too.

    A request that asks nothing of its calls, but says how its output is to be cut, is left free.

    Raises:
        VLLMValidationError: they contradict each other; becomes an HTTP 400.
    """
    if not declared(request, "tools"):
        return
    try:
        contract = contract_of(request, basic=settings.tool_constraints == "basic")
        if contract is not None and contract.is_enforced:
            _join(request, contract, domain)
    except ConstraintError as error:
        raise refusal(located(error, request), "") from error


def _join(request: Any, contract: ToolContract, domain: TokenDomain) -> None:
    asked = request.extract_structured_outputs()
    content = None if asked is None else asked_of(asked)
    if isinstance(content, StructuralTag) and contract.choice is CallChoice.REQUIRED:
        raise ConflictingConstraints(
            "A structural tag says what the whole output is, so no call can be demanded beside it.",
            location="tool_choice",
            hint="Leave the structural tag out, or tool_choice.",
        )
    if isinstance(content, StructuralTag | FramedOutput):
        return  # it already says what the whole output is
    if content is not None and contract.choice is CallChoice.NONE:
        return
    if content is None and not contract.demands and not _leaves_room(request, domain):
        return
    check_display(request)
    request.structured_outputs = carrying(FramedOutput(contract, content).text())
    for field in ("response_format", "text"):
        if hasattr(request, field):
            setattr(request, field, None)


def _leaves_room(request: Any, domain: TokenDomain) -> bool:
    """Whether the request can be given a constraint that it did not ask for."""
    try:
        check_display(request)
        check_sampling(request, domain.stop_ids)
    except ConflictingConstraints:
        return False
    return True


def unmarked(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return declarations for the chat template without ``strict``: it steers decoding, and is nothing to tell a model.

    Args:
        tools: in the form of Chat; they are not changed.
    """
    return [
        {**tool, "function": {key: value for key, value in tool["function"].items() if key != "strict"}}
        if isinstance(tool.get("function"), Mapping)
        else dict(tool)
        for tool in tools
    ]
