"""What ``structured_outputs`` may hold: anything else is one short sentence with its place."""

import importlib

import pytest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin.entrypoints.structured_outputs import check_field
from infernix_plugin.seams.structured_outputs_field import CHAT, COMPLETION, RESPONSES

KINDS = "It holds one of json, regex, choice, grammar, json_object or structural_tag."
WRONG = {
    "unknown": ({"jsn": {}}, "structured_outputs.jsn", "has no key 'jsn'", "Did you mean json?"),
    "unlike any": ({"zzz": 1}, "structured_outputs.zzz", "has no key 'zzz'", KINDS),
    "unknown option": (
        {"regex": "a", "whitespace_patern": "b"},
        "structured_outputs.whitespace_patern",
        "has no key 'whitespace_patern'",
        "Did you mean whitespace_pattern?",
    ),
    "none": ({}, "structured_outputs", "holds no constraint", KINDS),
    "only options": ({"disable_any_whitespace": True}, "structured_outputs", "holds no constraint", KINDS),
    "two": ({"json": {}, "regex": "a"}, "structured_outputs.regex", "one constraint, but json and regex are set", ""),
    "number": (
        {"json": 5},
        "structured_outputs.json",
        "type int",
        "json is a JSON Schema, as an object or as its text.",
    ),
    "regex": ({"regex": ["a"]}, "structured_outputs.regex", "type list", "regex is a string."),
    "choice": ({"choice": "a"}, "structured_outputs.choice", "type str", "choice is a list of strings."),
    "one choice": ({"choice": ["a", 1]}, "structured_outputs.choice[1]", "type int", "choice is a list of strings."),
    "option": (
        {"regex": "a", "disable_any_whitespace": "maybe"},
        "structured_outputs.disable_any_whitespace",
        "type str",
        "disable_any_whitespace is true or false.",
    ),
    "no object": ([1], "structured_outputs", "must be an object", KINDS),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name):
    given, place, said, hint = WRONG[name]
    with pytest.raises(VLLMValidationError) as refused:
        check_field({"model": "m", "structured_outputs": given})
    text = str(refused.value)
    assert refused.value.parameter == place
    assert said in text
    assert text.partition("Hint: ")[2] == hint
    assert len(text) < 250


@pytest.mark.parametrize(
    "given",
    [
        None, {"json": {"type": "object"}}, {"json": "{}"}, {"json_object": True}, {"choice": ["a"], "regex": None},
        {"regex": "a", "whitespace_pattern": " "}, StructuredOutputsParams(regex="a"),
    ],
)  # fmt: skip
def test_what_is_right_stays_as_it_is(given):
    body = {"structured_outputs": given}
    assert check_field(body) is body


@pytest.mark.parametrize("seam", [CHAT, COMPLETION, RESPONSES], ids=lambda seam: seam.attribute)
def test_every_request_reads_it(seam, monkeypatch):
    holder = getattr(importlib.import_module(seam.module), seam.attribute.partition(".")[0])
    method = seam.attribute.partition(".")[2]
    before = holder.__pydantic_decorators__.model_validators[method].func
    monkeypatch.setattr(holder, method, seam.replace(before))
    needed = [{"messages": [{"role": "user", "content": "q"}]}, {"prompt": "q"}, {"input": "q"}]
    body = {"model": "m", **needed[[CHAT, COMPLETION, RESPONSES].index(seam)]}
    try:
        with pytest.raises(VLLMValidationError, match="has no key 'jsn'"):
            holder.model_validate({**body, "structured_outputs": {"jsn": {}}})
        assert holder.model_validate({**body, "structured_outputs": {"regex": "a"}}).structured_outputs.regex == "a"
    finally:
        holder.__pydantic_decorators__.model_validators[method].func = before
        holder.model_rebuild(force=True)
