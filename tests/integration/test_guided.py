"""The guided dialect: which field counts, its limits, and what it stands beside."""

from types import SimpleNamespace

import pytest
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin import settings
from infernix_plugin.entrypoints.guided import LIMITS, read_guided
from infernix_plugin.entrypoints.options import keep_penalties_of_the_model_out
from infernix_plugin.errors import ConflictingConstraints, ConstraintError, ConstraintTooLarge


def request(given, **fields):
    return SimpleNamespace(**{"model_extra": given, "structured_outputs": None, "response_format": object(), **fields})


ALL = {"guided_json": "{}", "guided_grammar": 'root ::= "g"', "guided_regex": "r", "guided_choice": ["c"]}


def test_choice_regex_grammar_json_in_this_order():
    given = dict(ALL)
    for field, name in (("guided_choice", "choice"), ("guided_regex", "regex"), ("guided_grammar", "grammar")):
        asked = request(given)
        assert read_guided(asked) == field
        assert getattr(asked.structured_outputs, name) == ALL[field]
        assert asked.response_format is None
        given.pop(field)
    asked = request(given)
    assert read_guided(asked) == "guided_json"
    assert asked.structured_outputs.json == "{}"
    assert read_guided(request({"guided_json": None, "other": 1})) is None


@pytest.mark.parametrize("field", LIMITS)
def test_limits_on_both_sides(field):
    limit = getattr(settings.Settings(), LIMITS[field])
    text = '"' + "é" * ((limit - 2) // 2) + '"'
    assert read_guided(request({field: text})) == field
    with pytest.raises(ConstraintTooLarge, match=str(limit)) as refused:
        read_guided(request({field: text + "x"}))
    assert refused.value.location == field


def test_a_forced_call_wins_and_structured_outputs_conflict():
    forced = request({"guided_regex": "a"}, tool_choice="required")
    assert read_guided(forced) is None
    assert forced.structured_outputs is None
    assert read_guided(request({"guided_regex": "a"}, tool_choice="auto")) == "guided_regex"
    with pytest.raises(ConflictingConstraints) as refused:
        read_guided(request({"guided_regex": "a"}, structured_outputs=StructuredOutputsParams(regex="b")))
    assert refused.value.location == "guided_regex"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("guided_jsn", "Did you mean guided_json?"),
        ("guide_regex", "Did you mean guided_regex?"),
        ("guided_something", "There are guided_choice, guided_regex, guided_grammar, guided_json."),
    ],
)
def test_misspelled_fields_are_refused(name, hint):
    with pytest.raises(ConflictingConstraints) as refused:
        read_guided(request({name: "{}"}))
    assert (refused.value.location, refused.value.hint) == (name, hint)
    assert read_guided(request({"guidance": 1, "guided_decoding_backend": "x"})) is None


@pytest.mark.parametrize("given", [{"guided_regex": 1}, {"guided_choice": "a"}, {"guided_json": [1]}])
def test_values_of_another_type_are_refused(given):
    with pytest.raises(ConstraintError) as refused:
        read_guided(request(given))
    assert refused.value.location == next(iter(given))


def test_penalties_that_the_caller_sets_stay():
    asked = SimpleNamespace(presence_penalty=None, frequency_penalty=0.5, repetition_penalty=None)
    keep_penalties_of_the_model_out(asked)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.repetition_penalty) == (0.0, 0.5, 1.0)


def test_penalties_of_the_generation_config_do_not_reach_constrained_content():
    """What vLLM makes of a request, with a generation config that names penalties."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    from infernix_plugin.entrypoints.validation import refuse_conflicts

    config = {"presence_penalty": 1.5, "frequency_penalty": 0.2, "repetition_penalty": 1.1}
    neutral = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}

    def penalties(**fields):
        asked = ChatCompletionRequest.model_validate(
            {"model": "m", "messages": [{"role": "user", "content": "q"}], **fields}
        )
        refuse_conflicts(asked)
        params = asked.to_sampling_params(10, config)
        return {name: getattr(params, name) for name in config}

    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "null"}}}
    for constraint in ({"response_format": schema}, {"structured_outputs": {"regex": "a"}}, {"guided_choice": ["a"]}):
        assert penalties(**constraint) == neutral
        assert penalties(**constraint, presence_penalty=0.7) == {**neutral, "presence_penalty": 0.7}
    assert penalties() == config
