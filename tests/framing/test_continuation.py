"""Written content, found in the prompt by bytes and continued by the grammar and the reader."""

from __future__ import annotations

import json

import pytest

from infernix_plugin.errors import InvalidContinuation
from infernix_plugin.framing.continuation import as_tokens, written_content
from infernix_plugin.framing.events import ReadOutput
from infernix_plugin.framing.reader import OutputReader
from tests.framing.calling import CONTROL, DOMAIN, STOP, form_of, is_allowed, required, session_of, tokens_of
from tests.framing.test_tool_grammar import FREE, WEATHER, call

OPEN, CLOSE, START = CONTROL["<think>"], CONTROL["</think>"], CONTROL["<|im_start|>"]


@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        ([START, *b"user\nq", STOP, START, *b'assistant\n{"a"'], b'{"a"'),
        ([START, *b"assistant\n", OPEN, *b"\n\n", CLOSE, *b"\n\n{"], b"{"),
        ([START, *b"assistant\n", OPEN, *b"\n\n", CLOSE, *b"\n\n"], b""),
        ([START, *b"assistant\n", OPEN, *b"\nstep 1"], b""),
        ([START, *b"assistant\n", OPEN, *b"x", CLOSE, *b"\n\n\nyz\xe2"], b"\nyz\xe2"),
        ([START, *b"assistant\nx", CONTROL["<tool_call>"], *b"\n<f"], b"x<tool_call>\n<f"),
        ([*b"no markers"], None),
        ([], None),
    ],
)
def test_the_content_behind_the_framing(prompt, content):
    assert written_content(prompt, DOMAIN) == content


@pytest.mark.parametrize(
    ("prompt", "content"),
    [([*b"<s>assistant: x"], None), ([CLOSE, *b"\n\nearlier, and then a question"], None), ([OPEN, *b"x"], b"")],
)
def test_without_a_token_that_begins_a_message_only_open_reasoning_is_certain(prompt, content):
    class Other:
        token_bytes = staticmethod(DOMAIN.token_bytes)

        @staticmethod
        def control_id(text):
            return None if text == "<|im_start|>" else DOMAIN.control_id(text)

    assert written_content(prompt, Other()) == content


def test_calls_that_are_complete_cannot_be_continued():
    with pytest.raises(InvalidContinuation) as refused:
        as_tokens("é" + call("look"), DOMAIN)
    assert refused.value.location == f"offset {len('é'.encode()) + len(call('look')) - len('</tool_call>')}"


@pytest.mark.parametrize("cut", [0, *range(11, 80, 7)])
def test_a_call_goes_on_where_the_prefix_left_it(cut):
    text = call("lookup", ("city", "Rome"), ("days", "3"))
    prefix, rest = text[:cut], text[cut:]
    contract = required(WEATHER)
    session = session_of(contract)
    assert all(session.accept(token) for token in as_tokens(prefix, DOMAIN))
    new = [*tokens_of(rest), STOP]
    assert is_allowed(session, new)
    reader, output = OutputReader(form_of(contract, enforced=True), DOMAIN), ReadOutput()
    reader.go_on_from(as_tokens(prefix, DOMAIN))
    output.add(reader.feed(new))
    assert [(one.name, json.loads(one.arguments), one.complete) for one in output.calls] == [
        ("lookup", {"city": "Rome", "days": 3}, True)
    ]


def test_text_of_the_prefix_is_not_published_again():
    from infernix_plugin.framing.tools.contract import ToolContract

    contract = ToolContract((FREE,))
    reader, output = OutputReader(form_of(contract, enforced=True), DOMAIN), ReadOutput()
    reader.go_on_from(as_tokens("Let me", DOMAIN))
    output.add(reader.feed([*b" see", STOP]))
    assert output.content == " see"
