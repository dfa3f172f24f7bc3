"""The demo's checks, against languages listed or generated in another way."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.entrypoints.demo import jobs as demo

COMMANDS = {
    f"{action} the {device}{room}{time}."
    for action in ("turn on", "turn off")
    for device in ("lamp", "heater", "radio")
    for room in ("", " in the kitchen", " in the bedroom", " in the garage")
    for time in ("", *(f" at {hour:02}:{minute:02}" for hour in range(24) for minute in range(60)))
}


SOME_COMMANDS = sorted(COMMANDS)[::97]


def test_every_command_is_accepted():
    assert [text for text in COMMANDS if demo.check_command(text) is not None] == []


@given(st.data())
def test_a_changed_command_is_refused_unless_it_is_another_command(data):
    text = data.draw(st.sampled_from(SOME_COMMANDS))
    at = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.text("abt .:0", max_size=2))
    changed = text[:at] + instead + text[at + 1 :]
    assert (demo.check_command(changed) is None) == (changed in COMMANDS)


@pytest.mark.parametrize(
    "text",
    ["", ".", "turn on the lamp", "turn on the lamp. ", "turn on the lamp at 24:00.", "turn on the lamp at ٠٧:٠٠."],
)
def test_no_command(text):
    assert demo.check_command(text) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_every_prefix_of_an_object_is_a_beginning(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for end in range(len(text) + 1):
        assert demo.check_object_so_far(text[:end]) is None, text[:end]


def test_a_beginning_is_what_some_ending_completes():
    """All short texts over a small alphabet, against all short objects over the same alphabet."""
    alphabet = '{}":1,'
    texts = ["".join(letters) for size in range(8) for letters in itertools.product(alphabet, repeat=size)]
    beginnings = {text[:end] for text in texts if demo.check_object(text) is None for end in range(len(text) + 1)}
    for text in texts:
        if len(text) <= 3:
            assert (demo.check_object_so_far(text) is None) == (text in beginnings), text


@pytest.mark.parametrize(
    "text", ["[", "{1", '{"a" 1', '{"a":01', '{"a":tru1', '{"a":1}}', '{"a":"\n', "{} x", '{"a\\x']
)
def test_no_beginning(text):
    assert demo.check_object_so_far(text) is not None


def test_a_person():
    person = {"name": "Ada", "age": 36, "city": "London", "languages": ["English"]}
    assert demo.check_person(json.dumps(person)) is None
    for change in ({"age": 121}, {"languages": []}, {"name": ""}, {"city": "x" * 25}, {"more": 1}):
        assert demo.check_person(json.dumps(person | change)) is not None
    assert demo.check_person('{"name"') is not None


def test_the_kinds_are_all_there_streamed_and_not():
    kinds = {job.kind for job in demo.jobs()}
    assert kinds == {None, "json", "json_object", "choice", "regex", "grammar"}
    assert {stream for job in demo.jobs() if job.kind for stream in job.streams} == {True, False}


def test_an_answer_that_was_cut_is_only_right_where_the_language_has_no_end():
    by_kind = {job.kind: job for job in demo.jobs()}
    assert by_kind["choice"].complaint("positive", "stop") is None
    assert by_kind["choice"].complaint("positive", "length") is not None
    assert by_kind["json_object"].complaint('{"a": "b', "length") is None
    assert by_kind["json_object"].complaint('{"a": "b', "stop") is not None
    assert by_kind["json_object"].complaint('{"a": "b"}', "error") is not None


def test_a_call():
    (job,) = demo.call_jobs()
    right = 'get_weather: {"city": "Oslo", "days": 3}'
    assert job.complaint(right, "tool_calls") is None
    assert job.complaint(right, "stop") is not None
    assert job.complaint(right, "length") is not None
    wrong = ["", "get_weather", '{"city": "Oslo", "days": 3}', 'get_wind: {"city": "Oslo", "days": 3}', right + right]
    wrong += ['get_weather: {"city": "Oslo"}', 'get_weather: {"city": "Oslo", "days": 9}']
    for text in wrong:
        assert job.complaint(text, "tool_calls") is not None
