"""Structural tags as grammars: what is accepted is what xgrammar's own reader accepts, text by text."""

import json

import pytest
import xgrammar
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.matching import ConstraintCompiler, TokenDomain

END = 256
PIECES = [*(bytes([byte]) for byte in range(256)), b"<end>"]
COMPILER = ConstraintCompiler(TokenDomain(PIECES, control={"<end>": END}, stop=[END]))
ORACLE = xgrammar.GrammarCompiler(
    xgrammar.TokenizerInfo(PIECES, xgrammar.VocabType.RAW, vocab_size=len(PIECES), stop_token_ids=[END]),
    max_threads=1,
    cache_enabled=False,
)

ANY = {"type": "any_text"}
BRACES = {
    "type": "json_schema", "max_whitespace_cnt": 1,
    "json_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}  # fmt: skip


def text_of(form):
    return json.dumps({"type": "structural_tag", "format": form})


def const(value):
    return {"type": "const_string", "value": value}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements):
    return {"type": "sequence", "elements": list(elements)}


def either(*elements):
    return {"type": "or", "elements": list(elements)}


def of(kind, content, **members):
    return {"type": kind, "content": content, **members}


def regex(pattern):
    return {"type": "regex", "pattern": pattern}


def enum(*values):
    return {"type": "json_schema", "json_schema": {"enum": list(values)}}


def triggered(*tags, triggers=("<",), **members):
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": list(tags), **members}


def dispatch(*rules, **members):
    return {"type": "dispatch", "rules": [list(rule) for rule in rules], **members}


def separated(*tags, separator=",", **members):
    return {"type": "tags_with_separator", "separator": separator, "tags": list(tags), **members}


FIRST = tag("<a", const(""), ">")
RUN_HERE = {
    "const": (const("ab"), "ab", 3),
    "regex": (regex("a[^b]*"), "abc", 4),
    "regex: count": (regex("a|b{2,3}"), "ab", 4),
    "any text": ({**ANY, "excludes": ["ab"]}, "ab", 6),
    "any text: two": ({**ANY, "excludes": ["ab", "cb"]}, "abc", 5),
    "any text: repeated start": ({**ANY, "excludes": ["aab"]}, "ab", 7),
    "any text: not ASCII": (sequence(const("é"), {**ANY, "excludes": ["é"]}), "éa", 4),
    "any text, more": (sequence(ANY, const("b")), "ab", 4),
    "tag": (tag("<", ANY, ">"), "<>a", 5),
    "tag: ends": (tag("<", ANY, ["a>", "b"]), "<>ab", 5),
    "tag: excluded": (tag("", {**ANY, "excludes": [">", "b"]}, ">"), "ab>", 4),
    "tag: sequence": (tag("<", sequence(const("a"), ANY), ">"), "<>a", 5),
    "tag: either": (tag("<", either(const("a"), ANY), ">"), "<>a", 5),
    "tag: value, ends": (tag("a", BRACES, ["b", "c"]), "abc{}", 5),
    "tag: value, braces": (tag("{", BRACES, "}"), "{} ", 6),
    "tag: no end": (tag("a", BRACES, ["b", ""]), "ab{}", 5),
    "or: values": (either(tag("a", BRACES, "b"), tag("ac", BRACES, "b"), tag("d", regex("[ab]+"), "")), "abcd{}", 6),
    "star": (sequence(of("star", tag("a", BRACES, "b")), const("c")), "abc{}", 8),
    "star: text": (of("star", const("ab")), "ab", 5),
    "plus, optional": (sequence(of("plus", const("a")), const("b"), of("optional", BRACES)), "ab{}", 5),
    "repeat": (of("repeat", const("a"), min=1, max=2), "a", 4),
    "repeat: without end": (of("repeat", tag("<", BRACES, ">"), min=2, max=-1), "<{}>", 12),
    "triggered": (triggered(FIRST), "<a>", 6),
    "triggered: at least one": (triggered(FIRST, at_least_one=True), "<a>", 6),
    "triggered: one": (triggered(FIRST, stop_after_first=True), "<a>", 6),
    "triggered: exactly one": (triggered(FIRST, at_least_one=True, stop_after_first=True), "<a>", 6),
    "triggered: excluded": (triggered(FIRST, excludes=["b"]), "<a>b", 5),
    "triggered in a tag": (tag("d", triggered(FIRST), "e"), "<a>de", 5),
    "triggered in a tag: one": (tag("(", triggered(FIRST, stop_after_first=True), ")"), "<a>()", 6),
    "triggered in a tag: at least": (tag("(", triggered(FIRST, at_least_one=True), ")"), "<a>()", 6),
    "triggered: nested": (triggered(tag("<a", triggered(tag("[a", const("b"), "]"), triggers="["), "c")), "<a[]c", 6),
    "triggered: alike": (triggered(tag("<a", ANY, ">"), tag("<aa", const("c"), ">")), "<ac>", 6),
    "triggered: value": (triggered(tag("<>", BRACES, "/")), "<>{}/", 6),
    "triggered behind a tag": (sequence(tag("", ANY, ">"), triggered(FIRST)), "<a>", 6),
    "triggered behind text": (sequence(of("optional", const("a")), triggered(FIRST)), "a<>b", 6),
    "dispatch": (dispatch(["a", const("c")]), "abc", 6),
    "dispatch: once": (dispatch(["a", const("c")], loop=False), "abc", 6),
    "dispatch: values": (dispatch(["a", BRACES], ["b", const("")], excludes=["c"]), "abc{}", 5),
    "separated": (separated(tag("a", const("b"), ""), tag("c", BRACES, "d")), "abc,{}d", 6),
    "separated: one": (separated(tag("a", BRACES, ""), at_least_one=True, stop_after_first=True), "a{},", 6),
    "separated: nothing between": (separated(tag("<", BRACES, ">"), separator=""), "<{>}", 8),
    "number, mark": (sequence(enum(1, 12), const(":")), "12:", 4),
}
LEFT_TO_XGRAMMAR = {
    "overlapping ends": (tag("<", ANY, ["a", "ab"]), "<abc", 4),
    "triggered, more": (sequence(triggered(FIRST), const("e")), "<a>e", 5),
    "any text inside a tag": (tag("<", sequence(ANY, const("a")), ">"), "<>a", 5),
    "value or free text": (either(BRACES, triggered(FIRST)), "{}<>a", 4),
    "value or its beginning": (either(BRACES, sequence(const("{"), BRACES)), "{} ", 5),
    "numbers that grow": (sequence(enum(1, 12), const("2")), "12", 4),
    "words that grow": (sequence(regex("a+"), BRACES), "a{}", 5),
    "letters": ({**ANY, "max_chars": 1}, "ab", 2),
}


def members(form, letters, longest):
    """The engine, and the texts of some letters that the compiled tag and the oracle accept."""
    compiled = COMPILER.compile_structural_tag(text_of(form))
    oracle = ORACLE.compile_structural_tag(text_of(form))
    found, expected = set(), set()
    pending = [""]
    while pending:
        text = pending.pop()
        data = text.encode()
        accepted = compiled.session().preview([*data, END])
        matcher = xgrammar.GrammarMatcher(oracle)
        begun = all(map(matcher.accept_token, data))
        if accepted == len(data) + 1:
            found.add(text)
        if begun and matcher.is_completed():
            expected.add(text)
        if (begun or accepted >= len(data)) and len(text) < longest:
            pending.extend(text + letter for letter in letters)
    return compiled.engine, found, expected


@pytest.mark.parametrize("name", RUN_HERE)
def test_a_tag_that_is_read_here(name):
    engine, found, expected = members(*RUN_HERE[name])
    assert engine == "llguidance"
    assert expected
    assert found == expected


@pytest.mark.parametrize("name", LEFT_TO_XGRAMMAR)
def test_a_tag_that_is_left_to_xgrammar(name):
    engine, found, expected = members(*LEFT_TO_XGRAMMAR[name])
    assert engine == "xgrammar"
    assert found == expected


LEAVES = st.sampled_from(
    [const("a"), const("<"), const("ab"), const(""), BRACES, regex("b+"), enum(1, 12), enum("a"), ANY]
)


def nested(inner):
    parts = st.lists(inner, min_size=1, max_size=3)
    words = st.sampled_from(["a", "b", "<", ">", "<a", "ab"])
    tags = st.lists(st.builds(tag, words, inner, words), min_size=1, max_size=2)
    return st.one_of(
        parts.map(lambda found: sequence(*found)),
        parts.map(lambda found: either(*found)),
        st.builds(tag, words, inner, words),
        st.builds(of, st.sampled_from(["star", "plus", "optional"]), inner),
        st.builds(lambda found, once: triggered(*found, stop_after_first=once), tags, st.booleans()),
        st.builds(lambda found, least: triggered(*found, at_least_one=least), tags, st.booleans()),
        tags.map(lambda found: separated(*found)),
        st.builds(lambda word, part: dispatch([word, part]), words, inner),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, nested, max_leaves=5))
def test_random_tags(form):
    try:
        ORACLE.compile_structural_tag(text_of(form))
    except RuntimeError:
        return
    engine, found, expected = members(form, "<ab>{}1", 3)
    assert found == expected, engine
