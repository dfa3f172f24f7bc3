"""What users reported in area D (Qwen's tool calls), put right: small vocabulary, exact masks, the one reader.

The ids are those of the project's log of public threads; the inputs are minimal and our own.
"""

from __future__ import annotations

import json
import random

import pytest

from infernix_plugin.errors import UnsupportedSchema
from infernix_plugin.framing.events import ArgumentsText, CallEnded, ContentText
from infernix_plugin.framing.reader import OutputReader
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from tests.framing.calling import (
    CONTROL,
    DOMAIN,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    read,
    required,
    schema,
    session_of,
    tokens_of,
)

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
WRITE = Tool("write_file", schema({"content": STRING}, ["content"]), strict=True)
LOOSE = Tool("look", schema({"b": STRING, "n": INTEGER}))
PING = Tool("ping", schema({}), strict=True)


def call(name: str, *arguments: tuple[str, str]) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


def markup(text: str) -> list[int]:
    """The text with its markers as their tokens, and a stop."""
    return [*tokens_of(text), STOP]


def free(text: str, *tools: Tool, framing=None, stopped: bool = True):
    """An output that nothing constrains, read at once; every stream of it must say the same."""
    form = form_of(ToolContract(tools), enforced=False, **({"framing": framing} if framing else {}))
    ids = [*tokens_of(text), *([STOP] if stopped else [])]
    output = read(form, ids)
    for seed in range(3):
        assert read(form, ids, random.Random(seed)) == output
    return output


def enforced(text: str, *tools: Tool):
    """A constrained output: the masks let it through, and its reading."""
    assert is_allowed(session_of(required(*tools)), markup(text))
    return read(form_of(required(*tools), enforced=True), markup(text))


def arguments_of(output) -> list[tuple[str, object]]:
    return [(one.name, json.loads(one.arguments)) for one in output.complete_calls]


@pytest.mark.parametrize("value", ["    if x:\n        return 1\n", "\n\n", "\ttab\t", " "])
def test_d1_values_keep_their_indent_and_their_line_breaks(value):
    text = call("write_file", ("content", value))
    assert arguments_of(enforced(text, WRITE)) == [("write_file", {"content": value})]
    assert arguments_of(free(text, WRITE)) == [("write_file", {"content": value})]


def test_d2_a_value_whose_end_is_missing_is_kept_in_stream_and_aggregate():
    text = '<tool_call>\n<function=write_file>\n<parameter=content>\n{"x":1}\n</function>\n</tool_call>'
    assert arguments_of(free(text, WRITE)) == [("write_file", {"content": '{"x":1}'})]
    assert not is_allowed(session_of(required(WRITE)), markup(text))


def test_d3_required_and_named_let_only_declared_calls_through():
    for contract, names in (
        (required(PING, LOOSE), {"ping", "look"}),
        (required(PING, LOOSE, allowed=frozenset(["look"]), parallel=False), {"look"}),
    ):
        for text in ("No tool is needed.", "", " " + call("ping")):
            assert not is_allowed(session_of(contract), markup(text))
        for name in ("ping", "look", "pong"):
            assert is_allowed(session_of(contract), markup(call(name))) == (name in names)


def test_d4_with_the_choice_none_markup_is_text_and_nothing_is_lost():
    contract = ToolContract((PING,), CallChoice.NONE)
    assert not is_allowed(session_of(contract), tokens_of("<tool_call>"))
    text = "A call: <tool_call>\n<function=ping>\n</function>\n</tool_call>"
    spelled = [*text.encode(), STOP]
    assert is_allowed(session_of(contract), spelled)
    output = read(form_of(contract, enforced=True), spelled)
    assert (output.content, output.calls) == (text, [])
    # Without tools nothing is constrained, and the model may write the tokens themselves.
    assert (free(text).content, free(text).calls) == (text, [])


def test_d5_a_call_before_the_end_of_the_reasoning():
    text = "hm\n" + call("ping") + "</think>"
    output = free(text, PING, framing=THINKING)
    assert (output.reasoning, arguments_of(output)) == ("hm", [("ping", {})])
    # A constraint waits for the end of the reasoning, and then has its call all the same.
    thought = "hm\n" + call("ping") + "\n</think>\n\n"
    assert not is_allowed(session_of(required(PING), framing=THINKING), markup(thought))
    assert is_allowed(session_of(required(PING), framing=THINKING), markup(thought + call("ping")))
    output = read(form_of(required(PING), enforced=True, framing=THINKING), markup(thought + call("ping")))
    assert (output.reasoning, arguments_of(output)) == ("hm\n" + call("ping"), [("ping", {})])


def test_d6_a_tool_without_arguments_has_the_body_of_the_template_and_no_other():
    for body, allowed in (("", True), ("\n", False), ("\t" * 500, False), ("\t" * 500 + "\n", False), (" ", False)):
        text = f"<tool_call>\n<function=ping>\n{body}</function>\n</tool_call>"
        assert is_allowed(session_of(required(PING)), markup(text)) == allowed


@pytest.mark.parametrize("tool", [LOOSE, PING], ids=["plain", "strict"])
def test_d8_a_schema_beside_tools_leaves_the_answer_and_the_call_reachable(tool):
    answer = OutputConstraint.json_schema(schema({"ok": {"type": "boolean"}}, ["ok"]))
    for text, allowed in (
        ('{"ok":true}', True),
        (call(tool.name), True),
        (call(tool.name) + "\n" + call(tool.name), True),
        ('{"ok":1}', False),
        ("ok", False),
        ('{"ok":true}' + call(tool.name), False),
        ("", False),
    ):
        assert is_allowed(session_of(ToolContract((tool,)), answer), markup(text)) == allowed
        thought = markup("so</think>\n\n" + text)
        assert is_allowed(session_of(ToolContract((tool,)), answer, framing=THINKING), thought) == allowed


@pytest.mark.parametrize("second", ["1", "2"])
def test_d9_an_argument_twice(second):
    twice = call("look", ("b", "1"), ("b", second))
    assert not is_allowed(session_of(required(LOOSE)), markup(twice))
    assert not is_allowed(session_of(ToolContract((LOOSE,))), markup(twice))
    assert not is_allowed(
        session_of(required(WRITE)), markup(call("write_file", ("content", "1"), ("content", second)))
    )
    assert arguments_of(free(twice, LOOSE)) == [("look", {"b": "1"})]  # the first counts: it may be published already


def test_d10_a_long_string_flows_while_it_is_written_and_holds_back_what_may_end_it():
    reader = OutputReader(form_of(required(WRITE), enforced=True), DOMAIN)
    text = "line of text\n" * 800
    fragments: list[str] = []
    for token in tokens_of(call("write_file", ("content", text))):
        for event in reader.feed([token]):
            if isinstance(event, ArgumentsText):
                fragments.append(event.text)
            assert not isinstance(event, CallEnded) or len(fragments) > 5000
    assert json.loads("".join(fragments)) == {"content": text}
    reader = OutputReader(form_of(required(WRITE), enforced=True), DOMAIN)
    reader.feed(tokens_of("<tool_call>\n<function=write_file>\n<parameter=content>\nab"))
    assert reader.feed(tokens_of("\n</para")) == []
    assert reader.feed(tokens_of("x")) == [ArgumentsText(0, "\\n</parax")]


def test_d11_the_schema_says_what_a_value_is_and_what_it_cannot_say_is_refused():
    either = schema({"a": {"anyOf": [STRING, {"type": "null"}]}}, ["a"])
    with pytest.raises(UnsupportedSchema) as refused:
        session_of(required(Tool("f", either, strict=True)))
    assert refused.value.location == "tools[0].parameters#/properties/a"
    loose = Tool("f", either)
    assert arguments_of(enforced(call("f", ("a", "null")), loose)) == [("f", {"a": None})]
    assert arguments_of(enforced(call("f", ("a", "nul")), loose)) == [("f", {"a": "nul"})]
    one = schema({"d": {"type": "object"}, "s": STRING}, ["d", "s"])
    for strict, spelled in ((False, '{"k":1}'), (True, '{"k": 1}')):
        output = enforced(call("f", ("d", spelled), ("s", spelled)), Tool("f", one, strict=strict))
        assert arguments_of(output) == [("f", {"d": {"k": 1}, "s": spelled})]


def test_d12_the_order_of_arguments_is_free_or_forced_and_no_call_is_lost():
    parameters = schema({"a": STRING, "b": STRING}, ["b"])
    forth, back = call("f", ("a", "1"), ("b", "2")), call("f", ("b", "2"), ("a", "1"))
    strict, loose = Tool("f", parameters, strict=True), Tool("f", parameters)
    assert not is_allowed(session_of(required(strict)), markup(back))
    for text, tool in ((forth, strict), (forth, loose), (back, loose)):
        assert arguments_of(enforced(text, tool)) == [("f", {"a": "1", "b": "2"})]
    assert arguments_of(free(back, strict)) == [("f", {"a": "1", "b": "2"})]


def test_d13_a_type_that_stands_below_the_root_of_a_schema():
    parameters = {
        "properties": {
            "v": {"anyOf": [{"type": "object"}, {"type": "array"}]},
            "w": {"anyOf": [STRING, {"type": "array"}]},
            "r": {"$ref": "#/$defs/list"},
        },
        "$defs": {"list": {"type": "array"}},
    }
    tool = Tool("f", json.dumps(parameters))
    text = call("f", ("v", "[1,2]"), ("w", "123"), ("r", "[true]"))
    for output in (free(text, tool), enforced(text, tool)):
        assert arguments_of(output) == [("f", {"v": [1, 2], "w": "123", "r": [True]})]


@pytest.mark.parametrize("choice", CallChoice)
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("thinking", [True, False])
def test_d14_every_combination_of_strict_and_plain_tools_can_be_enforced(choice, parallel, thinking):
    framing = {"framing": THINKING} if thinking else {}
    for tools in ((WRITE,), (LOOSE,), (WRITE, LOOSE, PING)):
        session = session_of(ToolContract(tools, choice, parallel=parallel), **framing)
        content = "text" if choice is CallChoice.NONE else call("look" if LOOSE in tools else "write_file")
        if tools == (WRITE,) and choice is not CallChoice.NONE:
            content = call("write_file", ("content", "x"))
        assert is_allowed(session, markup(("so</think>\n\n" if thinking else "") + content))


def test_d15_one_call_and_then_the_end_where_calls_may_not_be_parallel():
    for contract in (required(PING, parallel=False), ToolContract((PING,), parallel=False)):
        assert is_allowed(session_of(contract), markup(call("ping")))
        assert not is_allowed(session_of(contract), tokens_of(call("ping") + "\n"))


def test_d16_prose_with_the_tag_flows_on():
    reader = OutputReader(form_of(ToolContract((PING,)), enforced=False), DOMAIN)
    assert reader.feed(tokens_of("The tag ")) == [ContentText("The tag ")]
    assert reader.feed([CONTROL["<tool_call>"], *tokens_of(" opens")]) == [ContentText("<tool_call> opens")]
    assert reader.feed(tokens_of(" a call.")) == [ContentText(" a call.")]
    text = "<tool_call> and </tool_call> stand around\n<function=other>"
    assert (free(text, PING).content, free(text, PING).calls) == (text, [])


@pytest.mark.parametrize("thinking", [True, False])
def test_d17_required_holds_for_any_number_of_tools(thinking):
    tools = [Tool(f"tool_{index}", LOOSE.parameters, strict=index % 2 == 0) for index in range(20)]
    framing, before = ({"framing": THINKING}, "so</think>\n\n") if thinking else ({}, "")
    for name in ("tool_0", "tool_7", "tool_19"):
        assert is_allowed(session_of(required(*tools), **framing), markup(before + call(name)))
    for text in ("", "text", call("tool_20")):
        assert not is_allowed(session_of(required(*tools), **framing), markup(before + text))


def test_d18_the_calls_are_the_models_own_form_with_raw_line_breaks():
    code = 'def f():\n    return "\\n"\n\n\nf()'
    assert arguments_of(enforced(call("write_file", ("content", code)), WRITE)) == [("write_file", {"content": code})]
    assert not is_allowed(session_of(required(WRITE)), tokens_of('{"name"'))
