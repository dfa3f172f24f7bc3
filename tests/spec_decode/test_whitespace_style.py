"""The guess at whitespace: whoever kept to a layout so far is expected to keep to it."""

import json

import pytest

from infernix_plugin.spec_decode.whitespace_style import WHITESPACE, WhitespaceStyle


@pytest.mark.parametrize(
    ("text", "following", "rest"),
    [
        ("", "a", ""),
        ("a", "b", ""),
        ("a: 1, b:", "1", " "),
        ("a: 1, b: ", "1", ""),
        ("a:\n\n1:", "1", "\n\n"),
        ("a:\n\n1:\n", "1", "\n"),
        ("a:1:", "1", ""),
        ("a = 1; b", "=", ""),
        ("a = 1; b = 1;", "c", " "),
        # Before anything is known: a space behind a colon, and behind a comma what stands behind colons.
        ("{", '"', ""),
        ('{"a":', "1", " "),
        ('{"a": 1,', '"', " "),
        ('{"a":1,', '"', ""),
        # Line breaks are followed by as much indentation as the depth asks for.
        ("{\n", '"', "  "),
        ('{\n    "a": [', "1", "\n        "),
        ('{\n    "a": [\n        1', "]", "\n    "),
        ('{\n    "a": [\n        1,', "2", "\n        "),
        ('{\n\t"a": {', '"', "\n\t\t"),
        ('{\n  "a": []', "}", "\n"),
        ('{\n  "a": {},', '"', "\n  "),
        # Text in quotes is not looked at.
        ('{"a: 1', "1", ""),
        ('{"a:1, \\"b:1": ', "1", ""),
        ('{"{[{": 1,\n', '"', ""),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 99])
def test_what_is_still_to_be_written(text, following, rest, size):
    style = WhitespaceStyle()
    for start in range(0, len(text), size):
        style.observe(text[start : start + size].encode())
    assert style.rest(ord(following)) == rest.encode()


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t"}], ids=str)
def test_a_layout_is_learned_from_its_first_object(layout):
    value = {"a": [1, {"b": "x: [y"}, []], "c": {"d": None}}
    text = json.dumps([value, value, value], **layout).encode()
    style, surprises = WhitespaceStyle(), []
    for place, byte in enumerate(text):
        if byte not in WHITESPACE and text[place - 1] not in WHITESPACE and not style.in_string:
            surprises += [place] * (style.rest(byte) != b"")
        elif byte in WHITESPACE and text[place - 1] not in WHITESPACE and not style.in_string:
            following = text[place:].lstrip()
            surprises += [place] * (style.rest(following[0]) != text[place : len(text) - len(following)])
        style.observe(bytes([byte]))
    assert all(place < len(text) / 3 for place in surprises)


def test_a_copy_reads_on_alone():
    style = WhitespaceStyle()
    style.observe(b'{"a": 1,')
    style.copy().observe(b'\n\n"b":2,')
    assert style.rest(ord('"')) == b" "


def test_whoever_keeps_to_no_layout_is_not_guessed_at():
    style = WhitespaceStyle()
    for count in range(1, 12):
        assert style.keeps or count > 4
        style.observe(b'"a":' + b" " * count + b"1," + b"\n" * count)
    assert not style.keeps
    style.observe(b'"a": 1, ' * 4)
    assert style.keeps, "it may begin at any time"
