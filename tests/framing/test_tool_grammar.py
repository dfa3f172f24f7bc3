"""The grammar of calls: exactly the written form, exactly the declared arguments."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from infernix_plugin.errors import ConflictingConstraints, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.framing.phases import CONTENT
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from tests.framing.calling import (
    CONTROL,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    read,
    required,
    schema,
    session_of,
    text_of,
    tokens_of,
    walk,
)

WEATHER = Tool(
    "lookup",
    schema(
        {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "unit": {"enum": ["c", "f", None]},
            "where": {
                "type": "object",
                "properties": {"at": {"type": "array", "items": {"type": "string", "maxLength": 3}}},
                "required": ["at"],
                "additionalProperties": False,
            },
        },
        ["city", "days"],
    ),
    strict=True,
)
PING = Tool("ping", schema({}), strict=True)
FREE = Tool("look", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))


def call(name: str, *arguments: tuple[str, str]) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


CITY, DAYS = ("city", "Shanghai"), ("days", "3")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (call("lookup", CITY, DAYS), True),
        (call("lookup", ("city", "  two\n\nlines \n"), DAYS), True),
        (call("lookup", ("city", "</parameter>\n</parameter"), DAYS), True),
        (call("lookup", ("city", "<tool_call"), DAYS), True),
        (call("lookup", ("city", ""), DAYS, ("unit", "null"), ("where", '{"at": ["a", "bcd"]}')), True),
        (call("lookup", CITY, DAYS, ("where", '{"at":["a"]}')), False),
        (call("lookup", CITY, DAYS, ("where", '{"at": ["abcd"]}')), False),
        (call("lookup", CITY, DAYS, ("unit", "k")), False),
        (call("lookup", CITY, ("days", "31")), False),
        (call("lookup", CITY, ("days", '"3"')), False),
        (call("lookup", CITY), False),
        (call("lookup", DAYS, CITY), False),
        (call("lookup", CITY, CITY, DAYS), False),
        (call("lookup", CITY, DAYS, ("more", "1")), False),
        (call("lookup", CITY, DAYS).replace(">\nShanghai", ">Shanghai"), False),
        (call("lookup", CITY, DAYS).replace("\n</function>", "\n\n</function>"), False),
        (call("ping"), True),
        (call("ping").replace(">\n</f", "></f"), False),
        (call("ping").replace(">\n</f", ">\n\t</f"), False),
        (call("ping").replace(">\n</f", ">\n\n</f"), False),
        (call("ping", CITY), False),
        (call("look", ("b", "1"), ("a", "\n2")), True),
        (call("look"), True),
        (call("look", ("a b", "")), True),
        (call("look", ("", "1")), False),
        (call("nothing"), False),
        (call("ping") + "\n" + call("look", ("x", "1")), True),
        (call("ping") + call("ping"), False),
        (call("ping") + "\n\n" + call("ping"), False),
        ("no call", False),
        ("", False),
    ],
)
def test_required_calls_have_exactly_the_form_of_the_template(text, allowed):
    session = session_of(required(WEATHER, PING, FREE))
    assert is_allowed(session, [*tokens_of(text), STOP]) is allowed


@pytest.mark.parametrize(
    ("declared", "values", "others"),
    [
        ([{"type": "string", "pattern": "\n</parameter>"}, {"type": "string", "pattern": "^a"}], ["a"], ["b"]),
        ([{"enum": ["x\n</parameter>"]}, {"type": "string", "pattern": "^a"}], ["a"], ["x", "x\n</parameter>"]),
        ([{"type": "string", "pattern": "^a$", "minLength": 2}, {"type": "integer"}], ["5"], ["a", "aa"]),
    ],
)
def test_alternatives_that_no_string_can_be_written_of_are_left_out(declared, values, others):
    tool = Tool("f", schema({"a": {"anyOf": declared}}, ["a"]), strict=True)
    for value in (*values, *others):
        ids = [*tokens_of(call("f", ("a", value))), STOP]
        assert is_allowed(session_of(required(tool)), ids) is (value in values)


@pytest.mark.parametrize("seed", range(4))
def test_every_tokenisation_of_a_call_is_allowed(seed):
    rng = random.Random(seed)
    text = call("lookup", ("city", "日本 \n</para"), DAYS) + "\n" + call("look", ("é", "12"))
    assert is_allowed(session_of(required(WEATHER, PING, FREE)), [*tokens_of(text, rng), STOP])


def test_one_call_where_calls_may_not_be_parallel():
    session = session_of(required(PING, parallel=False))
    assert is_allowed(session, tokens_of(call("ping")))
    assert not is_allowed(session, tokens_of("\n"))


def test_auto_allows_text_then_calls_then_nothing():
    contract = ToolContract((PING, FREE))
    assert is_allowed(session_of(contract), [*tokens_of("Let me see.\n\n" + call("ping")), STOP])
    assert is_allowed(session_of(contract), [*tokens_of("No need.\n"), STOP])
    assert is_allowed(session_of(contract), [*tokens_of(call("ping")), STOP])
    assert not is_allowed(session_of(contract), tokens_of(call("ping") + " and so on"))
    spelled = list(b"<tool_call> is a tag")
    assert is_allowed(session_of(contract), [*spelled, STOP])


def test_none_forbids_the_token_and_not_its_spelling():
    contract = ToolContract((PING,), CallChoice.NONE)
    assert not is_allowed(session_of(contract), tokens_of("<tool_call>"))
    assert is_allowed(session_of(contract), [*b"<tool_call> <function=ping>", STOP])


def test_only_allowed_tools_can_be_called():
    contract = required(WEATHER, PING, FREE, allowed=frozenset({"ping"}))
    assert is_allowed(session_of(contract), tokens_of(call("ping")))
    assert not is_allowed(session_of(contract), tokens_of(call("look")))


def test_json_content_or_calls_but_not_both():
    answer = OutputConstraint.json_schema(schema({"a": {"type": "string"}}, ["a"]))
    contract = ToolContract((PING, WEATHER))
    marker = '{"a": "' + "<tool_call" + '>"}'
    spelled = list(marker.encode())
    assert is_allowed(session_of(contract, answer), [*spelled, STOP])
    assert is_allowed(session_of(contract, answer), [*tokens_of(call("lookup", CITY, DAYS)), STOP])
    assert not is_allowed(session_of(contract, answer), [*tokens_of('{"a": ""}' + call("ping"))])
    assert not is_allowed(session_of(contract, answer), tokens_of("text"))
    assert not is_allowed(session_of(required(PING), answer), tokens_of('{"a"'))
    only = ToolContract((PING,), CallChoice.NONE)
    assert not is_allowed(session_of(only, answer), tokens_of("<tool_call>"))


def test_items_of_json_content_are_kept_apart_beside_tools():
    answer = OutputConstraint.json_schema('{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}')
    contract = ToolContract((PING, WEATHER))
    for framing, lead in ((CONTENT, []), (THINKING, [*b"[1,1", CONTROL["</think>"], *b"\n\n"])):
        for text, allowed in (("[1,2]", True), ("[1,1]", False), (call("lookup", CITY, DAYS), True)):
            session = session_of(contract, answer, framing)
            assert is_allowed(session, [*lead, *tokens_of(text), STOP]) == allowed


def test_items_that_a_strict_tool_could_not_keep_apart_are_refused():
    array = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    tool = Tool("t", schema({"a": array}, ["a"]), strict=True)
    with pytest.raises(UnsupportedSchema) as refused:
        session_of(required(tool))
    assert refused.value.location == "tools[0].parameters#/properties/a"
    array["items"] = {"enum": [1, 2]}
    session = session_of(required(Tool("t", schema({"a": array}, ["a"]), strict=True)))
    assert not is_allowed(session, tokens_of(call("t", ("a", "[1,1]"))))


@pytest.mark.parametrize("framing", [None, THINKING], ids=["plain", "thinking"])
def test_unique_items_of_the_content_beside_calls(framing):
    answer = OutputConstraint.json_schema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
    contract = ToolContract((PING, FREE))
    options, lead = ({"framing": framing}, "x</think>\n\n") if framing else ({}, "")
    for text, allowed in (("[1, 2]", True), ("[1, 1]", False), (call("look", ("a", "[1, 1]")), True)):
        ids = [*tokens_of(lead), *tokens_of(text), STOP]
        assert is_allowed(session_of(contract, answer, **options), ids) is allowed


def test_unique_items_of_strict_arguments_are_refused():
    items = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    with pytest.raises(UnsupportedSchema, match="uniqueItems"):
        session_of(required(Tool("f", schema({"a": items}), strict=True)))


def test_both_are_reachable_after_thinking():
    answer = OutputConstraint.json_object()
    for text in ("{}", call("ping")):
        ids = [*tokens_of("hm\n<tool_call></think>\n\n" + text), STOP]
        assert is_allowed(session_of(ToolContract((PING,)), answer, THINKING), ids)
    assert not is_allowed(session_of(required(PING), None, THINKING), [*tokens_of("hm"), STOP])


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        ({"a": {"type": ["string", "null"]}}, "#/properties/a"),
        ({"a": {}}, "#/properties/a"),
        ({"a": {"anyOf": [{"type": "string"}, {"type": "object"}]}}, "#/properties/a"),
        ({"a": {"enum": ["1", 1]}}, "#/properties/a"),
        ({"a": {"const": "x\n</parameter>y"}}, "#/properties/a"),
        ({"a": {"type": "string", "pattern": "a\n</parameter>|\n</parameter>$"}}, "#/properties/a"),
        ({"a\nb": {"type": "integer"}}, "#/properties"),
    ],
)
def test_values_that_the_form_cannot_tell_are_refused(declared, place):
    with pytest.raises(UnsupportedSchema) as refused:
        session_of(required(PING, Tool("f", schema(declared, declared), strict=True)))
    assert refused.value.location == f"tools[1].parameters{place}"


@pytest.mark.parametrize(
    "document",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"type": "array"},
        {"anyOf": [{"type": "object"}, {"type": "object", "minProperties": 1}]},
    ],
)
def test_strict_arguments_must_be_one_closed_object(document):
    with pytest.raises(UnsupportedSchema, match="strict tool"):
        session_of(required(Tool("f", json.dumps(document), strict=True)))


@pytest.mark.parametrize(
    ("minimum", "maximum"), [(0, None), (1, None), (2, 2), (0, 1), (1, 3), (3, None), (4, 9), (0, 2)]
)
@pytest.mark.parametrize("needed", [(), ("b",), ("d",)], ids=str)
def test_the_number_of_arguments(needed, minimum, maximum):
    """Every selection of arguments, against the schema itself."""
    bounds = {"minProperties": minimum} | ({} if maximum is None else {"maxProperties": maximum})
    names = ("a", "b", "c", "d")
    parameters = schema({name: {"type": "integer"} for name in names}, needed, **bounds)
    contract = required(Tool("f", parameters, strict=True), parallel=False)
    for size in range(len(names) + 1):
        for chosen in itertools.combinations(names, size):
            ids = [*tokens_of(call("f", *((name, "1") for name in chosen))), STOP]
            right = Draft202012Validator(json.loads(parameters)).is_valid(dict.fromkeys(chosen, 1))
            assert is_allowed(session_of(contract), ids) == right


def test_a_number_of_arguments_that_cannot_be_is_refused():
    for bounds in ({"minProperties": 3}, {"maxProperties": 0, "required": ["a"]}):
        document = {**json.loads(schema({"a": {"type": "integer"}, "b": {"type": "integer"}})), **bounds}
        with pytest.raises(UnsatisfiableConstraint) as refused:
            session_of(required(Tool("f", json.dumps(document), strict=True)))
        assert refused.value.location.startswith("tools[0].parameters#")


def test_a_reference_at_the_root_is_followed():
    document = {"$ref": "#/$defs/args", "$defs": {"args": json.loads(schema({"n": {"type": "integer"}}, ["n"]))}}
    tool = Tool("f", json.dumps(document), strict=True)
    assert is_allowed(session_of(required(tool)), tokens_of(call("f", ("n", "-7"))))


def test_strings_that_no_json_text_equals_may_stand_beside_other_types():
    tool = Tool("f", schema({"v": {"anyOf": [{"enum": ["auto", "off"]}, {"type": "integer"}]}}, ["v"]), strict=True)
    contract = required(tool)
    for text, value in (("auto", "auto"), ("12", 12)):
        ids = [*tokens_of(call("f", ("v", text))), STOP]
        assert is_allowed(session_of(contract), ids)
        assert json.loads(read(form_of(contract, enforced=True), ids).calls[0].arguments) == {"v": value}


def test_a_pattern_and_the_end_of_the_value_hold_together():
    tool = Tool("f", schema({"v": {"type": "string", "pattern": r"^x[^z]*$", "maxLength": 20}}, ["v"]), strict=True)
    assert is_allowed(session_of(required(tool)), tokens_of(call("f", ("v", "x\n</paramete"))))
    assert not is_allowed(session_of(required(tool)), tokens_of(call("f", ("v", "xz"))))
    assert not is_allowed(session_of(required(tool)), tokens_of(call("f", ("v", "x" * 21))))


@pytest.mark.parametrize(
    "tools",
    [[Tool("a"), Tool("a")], [Tool("")], [Tool("a>b")], [Tool("a\nb")], [Tool("\ud800")]],
    ids=["twice", "empty", ">", "newline", "surrogate"],
)
def test_names_that_cannot_be_told_apart_or_written_are_refused(tools):
    with pytest.raises(ConflictingConstraints, match=r"tools\[") as refused:
        ToolContract(tuple(tools))
    assert refused.value.location is not None


def test_unknown_and_missing_tools_are_refused():
    with pytest.raises(ConflictingConstraints, match="not among"):
        ToolContract((PING,), allowed=frozenset({"pong"}))
    with pytest.raises(ConflictingConstraints, match="no tool"):
        ToolContract((), CallChoice.REQUIRED)


def test_names_that_begin_each_other_stay_apart():
    tools = tuple(
        Tool(name, schema({"a": {"type": "integer"}}), strict=True) for name in ("get", "get_all", "get-x", "g")
    )
    for tool in tools:
        assert is_allowed(session_of(required(*tools)), [*tokens_of(call(tool.name, ("a", "1"))), STOP])
    assert not is_allowed(session_of(required(*tools)), tokens_of(call("get_al")))


def test_arguments_of_one_name_have_the_type_of_their_function():
    words = Tool(
        "f", schema({"v": {"type": "string", "pattern": "^[a-z]+$"}, "w": {"enum": ["null", "x"]}}, ["v", "w"]), True
    )
    numbers = Tool(
        "g", schema({"v": {"type": "array", "items": {"type": "integer"}}, "w": {"type": "integer"}}, ["v"]), True
    )
    contract = required(words, numbers)
    assert is_allowed(session_of(contract), tokens_of(call("f", ("v", "ab"), ("w", "null"))))
    assert is_allowed(session_of(contract), tokens_of(call("g", ("v", "[1, 2]"), ("w", "7"))))
    assert not is_allowed(session_of(contract), tokens_of(call("f", ("v", "[1]"))))
    assert not is_allowed(session_of(contract), tokens_of(call("g", ("v", "ab"))))


@pytest.mark.parametrize("seed", range(30))
def test_walks_through_the_masks_are_calls_that_satisfy_their_schemas(seed):
    rng = random.Random(seed)
    tools = (WEATHER, PING, FREE)
    contract = rng.choice([required(*tools), ToolContract(tools), required(WEATHER, parallel=False)])
    framing = rng.choice([THINKING, None])
    session = session_of(contract, None, framing) if framing else session_of(contract)
    ids = walk(session, rng)
    if ids is None:
        return
    form = form_of(contract, enforced=True, framing=framing) if framing else form_of(contract, enforced=True)
    output = read(form, ids)
    assert all(one.complete for one in output.calls)
    for one in output.calls:
        arguments = json.loads(one.arguments)
        declared = next(tool for tool in tools if tool.name == one.name)
        if declared.strict:
            jsonschema.validate(arguments, json.loads(declared.parameters))
    assert read(form, ids, rng) == output
    assert text_of(ids).count("<function=") >= len(output.calls)
