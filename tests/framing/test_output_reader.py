"""The reader: streams equal aggregates, calls are read as they were enforced, free calls leniently."""

from __future__ import annotations

import json
import random

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.framing.events import ArgumentsText, CallEnded, CallStarted, ContentText, ReadOutput
from infernix_plugin.framing.reader import OutputReader
from infernix_plugin.framing.tools.call_reader import UnreadableCall
from infernix_plugin.framing.tools.contract import Tool, ToolContract
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.model_executor.tiny.chat_template import CHAT_TEMPLATE
from tests.framing.calling import CONTROL, DOMAIN, PIECES, STOP, THINKING, form_of, read, required, schema, tokens_of
from tests.framing.test_tool_grammar import FREE, PING, WEATHER, call

WRITE = Tool("write", json.dumps({"properties": {"path": {"type": "string"}, "body": {"type": "string"}}}))
TYPED = Tool(
    "typed",
    json.dumps(
        {
            "properties": {
                "n": {"type": "integer"},
                "b": {"type": "boolean"},
                "o": {"anyOf": [{"type": "object"}, {"type": "array"}]},
                "so": {"anyOf": [{"type": "string"}, {"type": "object"}]},
                "r": {"$ref": "#/$defs/list"},
                "s": {"type": "string"},
            },
            "$defs": {"list": {"type": "array"}},
        }
    ),
)


def free(text: str, *tools: Tool, stopped: bool = True, framing=None):
    form = form_of(ToolContract(tools), enforced=False, **({"framing": framing} if framing else {}))
    ids = [*tokens_of(text), *([STOP] if stopped else [])]
    output = read(form, ids)
    for seed in range(3):
        assert read(form, ids, random.Random(seed)) == output
    return output


def arguments_of(output) -> list[tuple[str, object]]:
    return [(one.name, json.loads(one.arguments)) for one in output.complete_calls]


VALUES = st.text(
    alphabet=st.sampled_from('ab<>/\n"\\ é日\U0001f600\x00\x7f') | st.characters(exclude_categories=["Cs"])
)


@given(path=VALUES, body=VALUES, rng=st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_fragments_concatenate_to_the_arguments_for_any_value_and_chunking(path, body, rng):
    body = body.replace("\n</parameter>", "")
    path = path.replace("\n</parameter>", "")
    form = form_of(required(WRITE), enforced=True)
    ids = [*tokens_of(call("write", ("path", path), ("body", body)), rng), STOP]
    output = read(form, ids, rng)
    assert output == read(form, ids)
    assert output.calls[0].complete
    assert json.loads(output.calls[0].arguments) == {"path": path, "body": body}


def test_a_long_string_leaves_in_many_fragments_before_its_call_ends():
    reader = OutputReader(form_of(required(WRITE), enforced=True), DOMAIN)
    text = "line of text\n" * 800
    fragments, ended = 0, False
    for token in tokens_of(call("write", ("body", text))):
        for event in reader.feed([token]):
            fragments += isinstance(event, ArgumentsText)
            ended = ended or isinstance(event, CallEnded)
            assert not ended or fragments > 5000
    assert ended


def test_the_name_comes_before_any_argument():
    reader = OutputReader(form_of(required(WRITE), enforced=True), DOMAIN)
    events = reader.feed(tokens_of("<tool_call>\n<function=write>\n<parameter=path>\nab"))
    assert events == [CallStarted(0, "write"), ArgumentsText(0, '{"path": "ab')]


def test_line_breaks_before_calls_and_at_the_end_of_reasoning_belong_to_the_form():
    contract = ToolContract((PING,))
    text = "why\n\n</think>\n\nNow.\n\n" + call("ping") + "\n" + call("ping")
    output = read(form_of(contract, enforced=True, framing=THINKING), [*_bytes_and_markers(text), STOP])
    assert (output.reasoning, output.content) == ("why\n", "Now.")
    assert arguments_of(output) == [("ping", {}), ("ping", {})]


def _bytes_and_markers(text: str) -> list[int]:
    ids: list[int] = []
    while text:
        marker = next((marker for marker in CONTROL if text.startswith(marker)), None)
        ids += [CONTROL[marker]] if marker else list(text[0].encode())
        text = text[len(marker or text[0]) :]
    return ids


def test_line_breaks_that_precede_no_call_are_content():
    output = read(form_of(ToolContract((PING,)), enforced=True), [*tokens_of("a\n\nb\n\n"), STOP])
    assert output.content == "a\n\nb\n\n"


def test_spelled_markers_are_text():
    text = "<think> </think> <tool_call>\n<function=ping>\n</function>\n</tool_call>"
    output = read(form_of(ToolContract((PING,)), enforced=True), [*text.encode(), STOP])
    assert (output.content, output.calls) == (text, [])
    thinking = read(form_of(ToolContract((PING,)), enforced=True, framing=THINKING), [*b"</think>\n\nx"])
    assert (thinking.reasoning, thinking.content) == ("</think>\n\nx", "")


def test_a_cut_call_keeps_the_complete_ones_and_gives_no_arguments():
    form = form_of(required(WEATHER), enforced=True)
    whole = call("lookup", ("city", "Rome"), ("days", "3"))
    output = read(form, tokens_of(whole + "\n" + whole)[:-4])
    assert arguments_of(output) == [("lookup", {"city": "Rome", "days": 3})]
    assert [one.complete for one in output.calls] == [True, False]


def test_an_enforced_output_of_another_form_is_a_fault_and_not_text():
    for text in (
        "<tool_call>function",
        "<tool_call>\n<function=pong>\n",
        call("ping") + "x",
        call("ping")[:-20] + "<think>",
    ):
        with pytest.raises(UnreadableCall):
            read(form_of(required(PING), enforced=True), [*tokens_of(text), STOP])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (call("write", ("body", "    if x:\n        return 1\n")), {"body": "    if x:\n        return 1\n"}),
        ('<tool_call>\n<function=write>\n<parameter=body>\n{"x":1}\n</function>\n</tool_call>', {"body": '{"x":1}'}),
        ('<tool_call>\n<function=write>\n<parameter=body>\n{"x":1}\n', {"body": '{"x":1}'}),
        ("<tool_call><function=write><parameter=body>a</parameter></function></tool_call>", {"body": "a"}),
        (
            "<tool_call>\n<function=write>\n<parameter=path>\na\n<parameter=body>\nb\n</parameter>\n</function>\n</tool_call>",
            {"path": "a", "body": "b"},
        ),
        (call("write", ("body", "1"), ("path", "p"), ("body", "2")), {"body": "1", "path": "p"}),
        (call("write", ("other", "[1, 2]")), {"other": [1, 2]}),
        (call("write"), {}),
    ],
    ids=["indented", "unclosed", "unended", "one line", "no end", "twice", "undeclared", "empty"],
)
def test_free_calls_are_read_leniently(text, arguments):
    assert arguments_of(free(text, WRITE)) == [("write", arguments)]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n", "12", 12),
        ("n", " 12 ", 12),
        ("n", "twelve", "twelve"),
        ("b", "True", True),
        ("b", "false", False),
        ("s", "12", "12"),
        ("s", "null", "null"),
        ("s", '"x"', '"x"'),
        ("o", "[1,2]", [1, 2]),
        ("o", '{"k": 1}', {"k": 1}),
        ("so", "123", "123"),
        ("so", '{"k":1}', {"k": 1}),
        ("r", "[]", []),
        ("x", "1e999", "1e999"),
        ("x", "NaN", "NaN"),
        ("x", "None", None),
    ],
)
def test_the_declared_type_decides_what_a_text_is(name, text, value):
    assert arguments_of(free(call("typed", (name, text)), TYPED)) == [("typed", {name: value})]


def test_prose_about_the_tag_stays_text_and_flows():
    text = "the <tool_call> tag holds <function=..> lines"
    output = free(text, WRITE)
    assert (output.content, output.calls) == (text, [])
    reader = OutputReader(form_of(ToolContract((WRITE,)), enforced=False), DOMAIN)
    events = reader.feed(tokens_of("the <tool_call> tag"))
    assert events == [ContentText("the <tool_call> tag")]


def test_a_call_of_an_undeclared_function_is_text():
    text = call("nothing", ("a", "1"))
    output = free("x" + text, WRITE)
    assert output.content.startswith("x<tool_call>\n<function=nothing>")
    assert not output.calls


def test_a_free_call_ends_the_reasoning_that_was_left_open():
    output = free("hm\n" + call("write", ("body", "b")) + "</think>", WRITE, framing=THINKING)
    assert output.reasoning == "hm"
    assert arguments_of(output) == [("write", {"body": "b"})]


def test_a_cut_free_output_loses_no_text_and_invents_no_arguments():
    assert free("see <tool_call>\n<func", WRITE, stopped=False).content == "see <tool_call>\n<func"
    output = free("<tool_call>\n<function=write>\n<parameter=body>\nhalf", WRITE, stopped=False)
    assert output.complete_calls == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abé"', min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(city=VALUES, items=st.lists(JSON, max_size=3), count=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=100)
def test_calls_round_trip_through_the_chat_template(city, items, count):
    tool = Tool("f", schema({"city": {"type": "string"}, "items": {"type": "array"}, "count": {"type": "integer"}}))
    arguments = {"city": city.replace("\n</parameter>", ""), "items": items, "count": count}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["items"] = lambda value: list(value.items())
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]},
    ]
    rendered = environment.from_string(CHAT_TEMPLATE).render(messages=messages)
    written = rendered[rendered.rindex("<tool_call>") :].removesuffix("<|im_end|>\n")
    output = read(form_of(required(tool), enforced=True), [*_bytes_and_markers(written), STOP])
    assert arguments_of(output) == [("f", arguments)]
    assert FREE.name not in written


def test_types_that_lead_back_to_themselves_are_read_at_once():
    twice = {"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}, {"type": "integer"}]}
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/properties/d{n + 1}"}] * 2} for n in range(60)}
    tool = Tool("f", json.dumps({"properties": {"a": twice, **chain, "d60": {"type": "boolean"}}}))
    assert arguments_of(free(call("f", ("a", "7"), ("d0", "true")), tool)) == [("f", {"a": 7, "d0": True})]


@pytest.mark.parametrize("text", ["Let me\n\n", "Let me\n", "\n"])
def test_line_breaks_of_a_prefix_are_not_published_again(text):
    reader = OutputReader(form_of(ToolContract((FREE,)), enforced=True), DOMAIN)
    reader.go_on_from(list(text.encode()))
    assert reader.feed([*b"see", STOP]) == [ContentText("see")]


def test_a_vocabulary_without_the_closing_token():
    control = {marker: token for marker, token in CONTROL.items() if marker != "</tool_call>"}
    close = CONTROL["</tool_call>"]
    domain = TokenDomain([*PIECES[:close], b"", *PIECES[close + 1 :]], control=control, stop=[STOP])
    session = ConstraintCompiler(domain).prepare_tools(required(PING)).compiled.session()
    ids = []
    for part in (call("ping") + "\n" + call("ping")).split("<tool_call>")[1:]:
        ids += [CONTROL["<tool_call>"], *part.encode()]
    assert all(session.accept(token) for token in [*ids, STOP])
    for enforced in (True, False):
        reader, output = OutputReader(form_of(required(PING), enforced=enforced), domain), ReadOutput()
        for token in ids:
            output.add(reader.feed([token]))
        output.add(reader.feed([STOP]))
        assert (arguments_of(output), output.content) == ([("ping", {})] * 2, "")
