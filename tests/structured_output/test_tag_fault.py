"""Where a structural tag is wrong: literal tags, and random ones of which one part was broken."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.structured_output.tag_fault import MOST_TRIED, fault_of, judged_alone


def tag(form):
    return json.dumps({"type": "structural_tag", "format": form})


TEXT = {"type": "any_text"}
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f"]}
FIRST = {"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}
OLDER = {"triggers": ["<f>"], "structures": [FIRST]}
WRONG = {
    "no JSON": ('{"type": }', "1:10", "no JSON: Expecting value"),
    "too deep": ("[" * 100_000, None, "no JSON that can be read"),
    "no object": ("[]", "#", "not of the type list"),
    "neither form": ("{}", "#", "has no format"),
    "another type": (json.dumps({"type": "tag", "format": TEXT}), "#/type", "is 'structural_tag'"),
    "format": (tag(3), "#/format", "not of the type int"),
    "slip": (tag({"type": "any_tex"}), "#/format/type", "Did you mean any_text?"),
    "unlike any": (tag({"type": "zzz"}), "#/format/type", "Hint: Its types are any_text, const_string, "),
    "no type": (tag({"type": "plus", "content": {}}), "#/format/content", "has no type"),
    "part": (tag({"type": "plus", "content": 5}), "#/format/content", "not of the type int"),
    "member": (tag({"type": "const_string"}), "#/format", "must have a value field"),
    "regex": (tag({"type": "regex", "pattern": "("}), "#/format/pattern", "position 2: The parenthesis is not closed"),
    "grammar": (tag({"type": "grammar", "grammar": "root ::= a"}), "#/format/grammar", 'Rule "a" is not defined'),
    "schema": (
        tag({"type": "json_schema", "style": "qwen_xml", "json_schema": {"type": "strin"}}), "#/format/json_schema",
        'type "strin"',
    ),
    "unknown member": (tag({**TRIGGERED, "trigers": [], "tags": []}), "#/format", "Did you mean triggers?"),
    "the schema's name": (tag({"type": "json_schema", "json_shema": {}}), "#/format", "Did you mean json_schema?"),
    "the end's name": (
        tag({**TRIGGERED, "tags": [{"begin": "<f>", "content": TEXT, "ennd": "e"}]}), "#/format/tags/0",
        "Did you mean end?",
    ),
    "tag": (tag({**TRIGGERED, "tags": [{"begin": "<f>", "content": TEXT}]}), "#/format/tags/0", "end"),
    "content of a tag": (
        tag({**TRIGGERED, "tags": [{"begin": "<f>", "content": {"type": "x"}, "end": "e"}]}),
        "#/format/tags/0/content/type", "type 'x'",
    ),
    "trigger": (
        tag({**TRIGGERED, "tags": [{"begin": "<g>", "content": TEXT, "end": "e"}]}), "#/format", "match any trigger"
    ),
    "dispatch": (
        tag({"type": "dispatch", "rules": [["a", TEXT], ["b", {"type": "regex", "pattern": "["}]]}),
        "#/format/rules/1/1/pattern", "Unclosed",
    ),
    "older: no structures": (json.dumps({**OLDER, "structures": []}), "#/structures", "at least one"),
    "older: no triggers": (json.dumps({**OLDER, "triggers": [3]}), "#/triggers", "list of strings"),
    "older: no end": (
        json.dumps({**OLDER, "structures": [{"begin": "<f>", "schema": {}}]}), "#/structures/0", "end is a string"
    ),
    "older: begin": (
        json.dumps({**OLDER, "structures": [{"begin": 3, "schema": {}, "end": "e"}]}), "#/structures/0/begin", "string"
    ),
    "older: trigger": (json.dumps({**OLDER, "triggers": ["<g>"]}), "#", "match any trigger"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_place_and_the_reason(name):
    text, place, said = WRONG[name]
    fault = fault_of(text)
    assert fault.location == place
    assert said in str(fault)
    assert "/project" not in str(fault), "nor a place in xgrammar's own source"
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    "text", [tag(TEXT), tag({**TRIGGERED, "tags": [{"begin": "<f>", "content": TEXT, "end": "e"}]}), json.dumps(OLDER)]
)
def test_right_tags_have_no_fault(text):
    assert fault_of(text) is None


def test_a_reason_that_is_known_is_looked_for():
    """The server, which has a vocabulary, does not stumble over the token that comes first."""
    form = {"type": "sequence", "elements": [{"type": "token", "token": "<x>"}, {"type": "regex", "pattern": "("}]}
    assert fault_of(tag(form)) is None, "names of tokens need a vocabulary"
    known = fault_of(tag(form), "Regex parsing error at position 2: The parenthesis is not closed.")
    assert known.location == "#/format/elements/1/pattern"
    assert fault_of(tag(form), "some reason of the vocabulary").location == "#/format"


def test_a_tag_with_more_parts_than_are_tried_has_its_reason():
    parts = [{"type": "const_string", "value": "a"} for _ in range(MOST_TRIED)]
    fault = fault_of(tag({"type": "sequence", "elements": [*parts, {"type": "regex", "pattern": "("}]}))
    assert fault.location == "#/format"
    assert "The parenthesis is not closed" in str(fault)


NAMES = {
    "token": ({"type": "token", "token": "<t>"}, "token"),
    "any tokens": ({"type": "any_tokens", "exclude_tokens": [1, "<t>"]}, "exclude_tokens/1"),
    "trigger": (
        {
            "type": "token_triggered_tags",
            "trigger_tokens": ["<t>"],
            "tags": [{"begin": "a", "content": TEXT, "end": "b"}],
        },
        "trigger_tokens/0",
    ),
    "begin": ({"type": "tag", "begin": {"type": "token", "token": "<t>"}, "content": TEXT, "end": "b"}, "begin/token"),
    "dispatch": ({"type": "token_dispatch", "rules": [[3, TEXT], ["<t>", TEXT]]}, "rules/1/0"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_token_has(name):
    form, place = NAMES[name]
    form = tag({"type": "optional", "content": form})
    assert judged_alone(form) is None
    fault = fault_of(form, 'Token string "<t>" not found in vocabulary')
    assert fault.location == f"#/format/content/{place}"


@pytest.mark.parametrize("schema", [{"type": "strin"}, {"items": [{"const": 1}]}, False])
def test_schemas_in_the_plain_style_are_not_judged_here(schema):
    form = {"type": "plus", "content": {"type": "json_schema", "json_schema": schema}}
    assert fault_of(tag(form)) is None
    assert json.loads(judged_alone(tag(form)))["format"]["content"] == {"type": "json_schema", "json_schema": True}
    assert fault_of(json.dumps({**OLDER, "structures": [{**FIRST, "schema": schema}]})) is None


LEAVES = (
    {"type": "const_string", "value": "a"},
    {"type": "regex", "pattern": "[a-z]+"},
    {"type": "json_schema", "json_schema": {"type": "integer"}},
    {"type": "grammar", "grammar": 'root ::= "b"'},
)
BREAKS = {
    "regex": ("pattern", "("),
    "grammar": ("grammar", "root ::= y"),
}


def nested(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"type": "sequence", "elements": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"type": "or", "elements": parts}),
        inner.map(lambda part: {"type": "optional", "content": part}),
        inner.map(lambda part: {"type": "tag", "begin": "<", "content": part, "end": ">"}),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda parts: {
                "type": "tags_with_separator", "separator": ",",
                "tags": [{"begin": f"{i}", "content": part, "end": "."} for i, part in enumerate(parts)],
            }
        ),
    )  # fmt: skip


def leaves(node, path=()):
    """Every leaf with its path, found without the code under test."""
    if isinstance(node, dict) and node.get("type") in {leaf["type"] for leaf in LEAVES}:
        yield path, node
    elif isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, (*path, key))


@given(st.recursive(st.sampled_from(LEAVES).map(copy.deepcopy), nested, max_leaves=8), st.data())
def test_one_broken_part_of_many_is_found(form, data):
    form = copy.deepcopy(form)
    assert fault_of(tag(form)) is None
    path, leaf = data.draw(st.sampled_from(list(leaves(form))))
    kind = data.draw(st.sampled_from([*BREAKS, "unknown"]))
    leaf.clear()
    if kind == "unknown":
        leaf["type"] = "unknown"
        member = "type"
    else:
        member, value = BREAKS[kind]
        leaf |= {"type": kind, member: value}
    assert fault_of(tag(form)).location == "/".join(("#/format", *map(str, path), member))
