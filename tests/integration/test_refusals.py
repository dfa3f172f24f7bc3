"""What clients see: statuses, messages and parameters of our errors, and the options that are refused."""

import json
import pickle
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from infernix_plugin import errors
from infernix_plugin.entrypoints.options import check_request, check_sampling
from infernix_plugin.entrypoints.refusals import failure, refusal
from infernix_plugin.errors import ConflictingConstraints
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.observation.outcome import outcome_of
from infernix_plugin.structured_output.record import attach, detach, error_from, error_record
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import asked_of


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("#/properties/a/items/0/foo", "#/properties/a/items/0/foo"),
        ("#/properties/a.b~1c/items/0/foo", "#/properties/a%2Eb~1c/items/0/foo"),
        ("#/properties/lib/x.py", "#/properties/%6Cib/x%2Epy"),
        ("tools[0].function.parameters#/properties/tmp/50%", "tools[0].function.parameters#/properties/%74mp/50%25"),
        ("#", "#"),
        ("offset 3", "offset 3"),
    ],
)
def test_a_place_is_one_json_pointer_in_the_param_and_in_the_message(location, said):
    error = errors.UnsupportedSchema("No such keyword.", location=location, hint="Drop it.")
    response = create_error_response(refusal(error, "response_format")).error
    assert response.code == 400
    assert response.param == location
    assert response.message == f"response_format: No such keyword. (at {said}) Hint: Drop it."
    assert unquote(said) == location


def test_without_a_location_the_field_is_the_param():
    response = create_error_response(refusal(errors.InvalidChoice("Empty."), "structured_outputs.choice")).error
    assert (response.param, response.message) == (
        "structured_outputs.choice",
        "structured_outputs.choice: Empty.",
    )


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (errors.ConstraintDeadEnd("x", hint="y"), 422, "dead_end"),
        (errors.NonFiniteLogits("x"), 500, "non_finite"),
        (errors.InvalidRegex("x", location="offset 3"), 400, "refused"),
        (budget.timeout(10.0), 400, "refused"),  # kinds of errors that are at home elsewhere
        (budget.busy(), 400, "refused"),
        (budget.CompileCrash("x", hint="y"), 400, "refused"),
        (errors.InfernixError("x"), 500, "error"),
    ],
)
def test_errors_travel_through_a_record(error, status, outcome):
    record = error_record(error)
    assert outcome_of({"error": record}, "stop") == outcome
    assert all(value is None or isinstance(value, str) for value in record.values())
    again = error_from(record)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert pickle.loads(pickle.dumps(again)).args == again.args
    assert create_error_response(failure(again)).error.code == status


def test_a_foreign_exception_does_not_leak():
    assert "secret" not in str(error_record(ValueError("secret")))


def test_a_record_does_not_disturb_transfer_parameters():
    assert detach(attach(None, {"kind": "regex"})) == (None, {"kind": "regex"}, None)
    assert detach(attach({"a": 1}, {"kind": "regex"}, {"index": 0})) == ({"a": 1}, {"kind": "regex"}, {"index": 0})
    assert detach({"a": 1}) == ({"a": 1}, None, None)
    assert detach(None) == (None, None, None)


@pytest.mark.parametrize(
    "options",
    [
        {"stop": ["x"]},
        {"stop_token_ids": [1, 2]},
        {"ignore_eos": True},
        {"min_tokens": 2},
        {"bad_words": ["x"]},
        {"allowed_token_ids": [1]},
        {"include_stop_str_in_output": True},
        {"logit_bias": {3: float("-inf")}},
        {"logit_bias": {3: 1.0, 4: float("nan")}},
        {"logit_bias": {3: -1e31}},
    ],
)
def test_options_that_can_break_a_constraint(options):
    (name,) = options
    with pytest.raises(ConflictingConstraints) as refused:
        check_sampling(SamplingParams(max_tokens=5, **options), model_stops=(1,))
    assert refused.value.location == name
    assert len(refused.value.message) > len(name) + 30


def test_harmless_options():
    check_sampling(SamplingParams(stop_token_ids=[1], logprobs=2, presence_penalty=1.0, n=2), model_stops=(1,))
    check_sampling(SamplingParams(min_p=0.1, logit_bias={3: -100.0, 4: 100.0}), model_stops=(1,))


def plain_request(**fields):
    empty = {"model_extra": {}, "structured_outputs": None, "response_format": None, "vllm_xargs": None}
    return SimpleNamespace(**{**empty, **fields})


def test_requests():
    check_request(plain_request())
    check_request(plain_request(vllm_xargs={"other": 1}, response_format=SimpleNamespace(type="text")))
    for name in ("guided_decoding_backend", "guided_whitespace_pattern", "guided_json_object"):
        with pytest.raises(ConflictingConstraints) as refused:
            check_request(plain_request(model_extra={name: "x"}))
        assert refused.value.location == name
    with pytest.raises(ConflictingConstraints, match="response_format and structured_outputs"):
        check_request(plain_request(response_format=SimpleNamespace(type="json_object"), structured_outputs=object()))


@pytest.mark.parametrize("kind", ["regex", "choice", "grammar"])
def test_text_constraints_beside_tools(kind):
    value = ["a"] if kind == "choice" else "a"
    fields = {"structured_outputs": StructuredOutputsParams(**{kind: value}), "tools": [{}]}
    for tool_choice in ("auto", "required", None):
        with pytest.raises(ConflictingConstraints) as refused:
            check_request(plain_request(**fields, tool_choice=tool_choice))
        assert refused.value.location == f"structured_outputs.{kind}"
    check_request(plain_request(**fields, tool_choice="none"))
    check_request(plain_request(structured_outputs=StructuredOutputsParams(json="{}"), tools=[{}]))


def ask(**fields):
    return asked_of(StructuredOutputsParams(**fields))


def test_translation_keeps_the_source():
    schema = {"type": "object", "properties": {"z": {}, "a": {"const": "é"}}}
    assert ask(json=schema) == OutputConstraint.json_schema(schema)
    assert ask(json='{"z": 1, "a": 2}').source == '{"z": 1, "a": 2}'
    assert list(json.loads(ask(json=schema).source)["properties"]) == ["z", "a"]
    assert ask(regex="a+") == OutputConstraint.regex("a+")
    assert ask(choice=["b", "a"]).choices == ("a", "b")
    assert ask(grammar='root ::= "a"') == OutputConstraint.grammar('root ::= "a"')
    assert ask(json_object=True) == OutputConstraint.json_object()
    tag = '{"type": "structural_tag", "format": {"type": "any_text"}}'
    assert ask(structural_tag=tag) == StructuralTag(tag)


def test_lark_is_ours_where_we_read_it_and_xgrammars_where_only_it_does():
    readable = 'start: "a" WORD\nWORD: /[a-z]+/\n'
    assert ask(grammar=readable) == OutputConstraint.grammar(readable)
    lexed = 'start: "a" "b"\n%import common.WS\n%ignore WS\n'
    asked = ask(grammar=lexed)
    assert isinstance(asked, StructuralTag)
    assert "::=" in asked.text
    broken = 'start: "a" undefined_rule\n'
    assert ask(grammar=broken) == OutputConstraint.grammar(broken)
    assert ask(grammar="this is = no grammar") == OutputConstraint.grammar("this is = no grammar")


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"json": " "}, errors.InvalidSchema),
        ({"json_object": False}, errors.InvalidSchema),
        ({"grammar": "\n"}, errors.InvalidGrammar),
        ({"structural_tag": "[1]"}, errors.InvalidGrammar),
        ({"structural_tag": "{"}, errors.InvalidGrammar),
        ({"json": "{}", "whitespace_pattern": " "}, ConflictingConstraints),
        ({"json": "{}", "disable_any_whitespace": True}, ConflictingConstraints),
        ({"json": "{}", "disable_additional_properties": True}, ConflictingConstraints),
    ],
)
def test_translation_refuses(fields, kind):
    with pytest.raises(kind):
        ask(**fields)


@pytest.mark.parametrize("option", ["whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"])
def test_an_option_that_is_refused_has_its_place(option):
    with pytest.raises(ConflictingConstraints) as refused:
        ask(json="{}", **{option: " " if option == "whitespace_pattern" else True})
    assert refused.value.location == f"structured_outputs.{option}"
