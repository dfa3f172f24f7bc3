"""Constraints of a Messages request that vLLM itself would drop: each holds, or is refused with its place."""

from __future__ import annotations

import anthropic
import pytest

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def claude(tiny_server):
    return anthropic.Anthropic(base_url=tiny_server.url, api_key="none", max_retries=0, timeout=120)


def ask(claude, **body):
    return claude.messages.create(
        model="tiny",
        max_tokens=100,
        messages=[{"role": "user", "content": "q"}],
        extra_body={"chat_template_kwargs": {"enable_thinking": False}, **body},
    )


def test_an_empty_schema_is_any_json_value(claude):
    answer = ask(claude, output_config={"format": {"type": "json_schema", "schema": {}}}, temperature=0)
    text = "".join(block.text for block in answer.content)
    assert text.lstrip()[0] in '{["-0123456789tfn'


def test_a_guided_field_counts_before_the_format(claude):
    answer = ask(claude, guided_choice=["aa"], output_config={"format": {"type": "json_schema", "schema": {}}})
    assert "".join(block.text for block in answer.content) == "aa"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex: "),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"rejex": "a"}}, "structured_outputs"),
        ({"guided_regex": "a" * 4097}, "guided_regex"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend"),
        ({"response_format": {"type": "json_object"}}, "output_config.format"),
        (
            {
                "structured_outputs": {"regex": "a"},
                "output_config": {"format": {"type": "json_schema", "schema": {"type": "null"}}},
            },
            "structured_outputs",
        ),
        ({"structured_outputs": {"regex": "a"}, "stop_sequences": ["x"]}, "stop"),
    ],
    ids=[
        "no schema", "bad regex", "no string", "unknown kind", "too long", "removed", "another API's", "two", "stop",
    ],
)  # fmt: skip
def test_what_cannot_hold_is_a_400_in_the_shape_of_the_api(claude, body, says):
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(claude, **body)
    assert refused.value.body["type"] == "error"
    assert says in refused.value.body["error"]["message"]
