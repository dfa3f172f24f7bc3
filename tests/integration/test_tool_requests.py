"""The contract that a request states: named, allowed and parallel calls, by the rules of its own API."""

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError

from infernix_plugin.entrypoints.origin import Origin, mark_origin, origin_of
from infernix_plugin.entrypoints.tools.allowed import allowed_names, without_allowed_tools
from infernix_plugin.entrypoints.tools.joining import join_tools
from infernix_plugin.entrypoints.tools.places import located
from infernix_plugin.entrypoints.tools.request import contract_of
from infernix_plugin.errors import ConstraintError
from infernix_plugin.framing.tools.contract import CallChoice
from infernix_plugin.framing.tools.grammar import calls_of
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.settings import Settings

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
NAMED = {"type": "function", "function": {"name": "f"}}


def request(**fields):
    body = {"messages": [{"role": "user", "content": "q"}], "tools": TOOLS, **fields}
    return ChatCompletionRequest(**without_allowed_tools(body))


def allowed(mode="required", tools=(NAMED,)):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("origin", "fields", "parallel"),
    [
        (Origin.CHAT, {}, False),
        (Origin.CHAT, {"parallel_tool_calls": True}, True),
        (Origin.MESSAGES, {"parallel_tool_calls": True}, True),
        (Origin.MESSAGES, {"parallel_tool_calls": False}, False),
        (Origin.MESSAGES, {}, True),
    ],
)
def test_a_named_tool_is_called_once_unless_its_api_says_otherwise(origin, fields, parallel):
    asked = request(tool_choice=NAMED, **fields)
    mark_origin(asked, origin)
    contract = contract_of(asked, basic=True)
    assert (contract.choice, contract.allowed, contract.parallel) == (CallChoice.REQUIRED, frozenset("f"), parallel)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_keep_their_mode_and_may_be_called_several_times(mode):
    contract = contract_of(request(tool_choice=allowed(mode)), basic=True)
    assert (contract.choice, contract.allowed, contract.parallel) == (CallChoice(mode), frozenset("f"), True)
    assert len(contract.tools) == 2


@pytest.mark.parametrize(
    "choice", [allowed("none"), allowed(tools=()), allowed(tools=({},)), {"type": "allowed_tools"}, allowed(tools=(1,))]
)
def test_another_form_of_allowed_tools_is_refused(choice):
    with pytest.raises(VLLMValidationError) as refused:
        request(tool_choice=choice)
    assert refused.value.parameter == "tool_choice.allowed_tools"


def test_no_client_can_write_what_is_only_noted():
    asked = request(infernix_allowed_tools=["f"], infernix_origin="count_tokens")
    assert allowed_names(asked) is None
    assert origin_of(asked) is Origin.CHAT


def responses_request(*tools):
    return ResponsesRequest.model_validate({"model": "m", "input": "q", "tools": list(tools)})


OPEN = {"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False}


def function(name, parameters=None):
    return {"type": "function", "name": name, "parameters": parameters, "strict": True}


def namespace(*tools):
    return {"type": "namespace", "name": "n", "description": "d", "tools": list(tools)}


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        (
            [function("f"), namespace(function("g"), function("h", OPEN))],
            "tools[1].tools[1].parameters#/properties/a",
        ),
        (
            [namespace(function("g")), function("f", OPEN)],
            "tools[1].parameters#/properties/a",
        ),
        ([function("f"), function("f")], "tools[1].name"),
    ],
    ids=["inside", "behind", "name"],
)
def test_places_count_as_the_request_does_also_in_namespaces(tools, place):
    asked = responses_request(*tools)
    with pytest.raises(ConstraintError) as refused:
        calls_of(contract_of(asked, basic=True), GrammarOptions())
    assert located(refused.value, asked).location == place


TAG = {"structural_tag": '{"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}'}


@pytest.mark.parametrize("choice", ["required", NAMED, allowed("required")])
def test_no_call_can_be_demanded_beside_a_structural_tag(choice):
    with pytest.raises(VLLMValidationError) as refused:
        join_tools(request(tool_choice=choice, structured_outputs=TAG), None, Settings())
    assert "(at tool_choice)" in str(refused.value)


@pytest.mark.parametrize("choice", ["auto", "none", allowed("auto")])
def test_a_structural_tag_stays_where_no_call_is_demanded(choice):
    asked = request(tool_choice=choice, structured_outputs=TAG)
    join_tools(asked, None, Settings())
    assert asked.structured_outputs.structural_tag == TAG["structural_tag"]
