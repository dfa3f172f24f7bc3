"""Structural tags in both forms, and behind open reasoning."""

import json

import pytest

from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.structured_output import structural_tag

CLOSE, END = 256, 257
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "ok"}}
OLDER = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": {"type": "boolean"}, "end": "</f>"}],
    "triggers": ["<f>"],
}


@pytest.fixture(scope="module")
def compiler():
    pieces = [*(bytes([byte]) for byte in range(256)), b"</think>", b"<end>"]
    return ConstraintCompiler(TokenDomain(pieces, control={"</think>": CLOSE, "<end>": END}, stop=[END]))


def accepts(compiler, tag, framing, tokens):
    session = compiler.compile_structural_tag(tag.after(framing).text).session()
    return session.preview([*tokens, END]) == len(tokens) + 1


def test_content_only(compiler):
    tag = structural_tag.from_json(json.dumps(TAG))
    assert accepts(compiler, tag, CONTENT, b"ok")
    assert not accepts(compiler, tag, CONTENT, b"no")


@pytest.mark.parametrize("between", [b"", b"\n\n"])
def test_after_open_reasoning(compiler, between):
    tag = structural_tag.from_json(json.dumps(TAG))
    thinking = Framing(thinking=True, close_id=CLOSE)
    assert accepts(compiler, tag, thinking, [*b"well, ok", CLOSE, *between, *b"ok"])
    assert accepts(compiler, tag, thinking, [CLOSE, *between, *b"ok"])
    assert not accepts(compiler, tag, thinking, b"ok")
    assert not accepts(compiler, tag, thinking, [*b"well", CLOSE, *between, *b"no"])


def test_the_older_form(compiler):
    tag = structural_tag.from_json(json.dumps(OLDER))
    assert accepts(compiler, tag, CONTENT, b"free <f>true</f> text")
    assert not accepts(compiler, tag, CONTENT, b"free <f>3</f> text")


def test_free_text_after_open_reasoning(compiler):
    """Line breaks behind the reasoning are free text, too; control tokens are spelled in the content only."""
    tag = structural_tag.from_json(json.dumps(OLDER))
    thinking = Framing(thinking=True, close_id=CLOSE)
    assert compiler.compile_structural_tag(tag.after(thinking).text).engine == "llguidance"
    assert accepts(compiler, tag, thinking, [*b"<f>3", CLOSE, *b"\n\nfree <f>true</f> ", CLOSE, *b"<f>false</f>"])
    assert accepts(compiler, tag, thinking, [CLOSE])
    assert not accepts(compiler, tag, thinking, [CLOSE, *b"\n\n<f>3</f>"])
    assert not accepts(compiler, tag, thinking, b"<f>true</f>")


def test_lark(compiler):
    tag = structural_tag.from_lark('start: "a" WORD\nWORD: /[a-z]+/\n')
    assert accepts(compiler, tag, CONTENT, b"abc")
    assert not accepts(compiler, tag, CONTENT, b"b")
    assert structural_tag.from_lark("no = grammar") is None
