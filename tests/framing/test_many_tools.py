"""What a list of tools costs grows with the list, not with its square: judged by calls of functions."""

import json
import sys

from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.framing.tools.grammar import CallTokens, calls_of, output_grammar
from infernix_plugin.matching.engines.lexing import ambiguity
from tests.framing.calling import CONTROL, DOMAIN, OPTIONS

PARAMETERS = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False})


def calls_for(tools: int) -> int:
    offered = tuple(Tool(f"tool_{index}", PARAMETERS, strict=True) for index in range(tools))
    contract = ToolContract(offered, CallChoice.REQUIRED)
    tokens = CallTokens(CONTROL["<tool_call>"], CONTROL["</tool_call>"], tuple(CONTROL.values()))
    grammar = output_grammar(contract, calls_of(contract, OPTIONS), tokens, None)
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert ambiguity(grammar, DOMAIN) is None
    finally:
        sys.setprofile(None)
    return made


def test_the_check_of_the_lexer_grows_with_the_number_of_tools() -> None:
    calls_for(10)  # what is kept of shared parts
    assert calls_for(400) < 3 * calls_for(200)
