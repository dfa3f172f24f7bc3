"""Lark: the supported subset by enumeration and against Lark's meaning as xgrammar reads it, faults by place."""

from __future__ import annotations

import itertools

import pytest
import xgrammar
from hypothesis import given, settings
from hypothesis import strategies as st
from xgrammar.testing import _is_grammar_accept_string

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, InvalidGrammar, UnsatisfiableConstraint
from infernix_plugin.grammar import lark
from infernix_plugin.grammar.ir import Grammar, TokenSet
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_oracle import language, matches

OPTIONS = GrammarOptions()


def read(text: str) -> Grammar:
    return lark.parse(text, OPTIONS)


def refusal_of(text: str) -> ConstraintError | None:
    try:
        read(text)
    except ConstraintError as refused:
        return refused
    return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('start: "a" | "b" "a"', {"a", "ba"}),
        ('start: a b?\na: "a"\nb: "b"+', {"a", "ab", "abb", "abbb"}),
        ('start: "a" ["b"] | "b" [("a" | "b") "a"]', {"a", "ab", "b", "baa", "bba"}),
        ('start: "a"~2 "b"~0..1', {"aa", "aab"}),
        ('start: LETTER ~ 3\nLETTER: "a" .. "a"', {"aaa"}),
        ('start: ("ab")*', {"", "ab", "abab"}),
        ('start: "A"i', {"a"}),
        ("start: /b+a?/", {"b", "bb", "bbb", "bbbb", "ba", "bba", "bbba"}),
        (r"start: /[^a\/]{2}/", {"bb"}),
        ('start: start "a" | "b"', {"b", "ba", "baa", "baaa"}),
        ("start: pair -> one\n     | /a/ -> two\n\n     | // nothing\npair: /ab/", {"ab", "a", ""}),
        ('?start: a\n!a: _b\n_b.2: B\nB.-1: "b" // comment\n# comment', {"b"}),
        ('start: ("a" // first\n | "b" # second\n)', {"a", "b"}),
        ('b: "b"\nstart: b', {"b"}),
        ('start: ""', {""}),
    ],
)
def test_enumerated_language(text: str, expected: set[str]) -> None:
    assert language(read(text), "ab", 4) == expected


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("DIGIT", ["0"], ["", "00", "a"]),
        ("HEXDIGIT", ["0", "f", "F"], ["g"]),
        ("INT", ["0", "012"], ["", "-1"]),
        ("SIGNED_INT", ["+1", "-0", "7"], ["--1"]),
        ("DECIMAL", ["1.", "1.5", ".5"], ["1", "."]),
        ("FLOAT", ["1e5", "1.e-3", ".5", "2.E+10"], ["1", "e5"]),
        ("SIGNED_FLOAT", ["-1.5"], ["-1"]),
        ("NUMBER", ["1", "1.5", "1e5"], ["-1", ""]),
        ("SIGNED_NUMBER", ["-1", "+.5"], ["-"]),
        ("LETTER", ["a", "Z"], ["é", "1"]),
        ("WORD", ["ab"], ["", "a1"]),
        ("CNAME", ["_a1", "a"], ["1a", ""]),
        ("WS", [" ", "\t\f\r\n"], ["", "\v"]),
        ("WS_INLINE", [" \t"], ["\n"]),
        ("NEWLINE", ["\n", "\r\n\n"], ["\r", ""]),
        ("ESCAPED_STRING", ['""', '"a\\"b"', '"\\\\"', '"é"'], ['"', '"\\"', '"""']),
        ("SH_COMMENT", ["#", "# a"], ["#\n", ""]),
    ],
)
def test_common_terminals(name: str, accepted: list[str], refused: list[str]) -> None:
    plain = f"%import common.{name}\nstart: {name}"
    variants = [
        plain,
        f"%import common.{name} -> T // comment\nstart: T",
        f"%import common ( {name} , CR )\nstart: {name}",
        f"start: {name}\n%import common.{name}",
    ]
    for variant in variants:
        grammar = read(variant)
        assert [text for text in accepted if not matches(grammar, text)] == []
        assert [text for text in refused if matches(grammar, text)] == []
    theirs = xgrammar.Grammar.from_lark(plain)
    assert [text for text in accepted if not _is_grammar_accept_string(theirs, text)] == []
    assert [text for text in refused if _is_grammar_accept_string(theirs, text)] == []


def test_an_escaped_string_stays_on_its_line() -> None:
    assert not matches(read("%import common.ESCAPED_STRING\nstart: ESCAPED_STRING"), '"a\n"')


def test_string_escapes() -> None:
    assert matches(read(r'start: "\n\t\"\\\x41\u00e9\U0001F600é😀\/"'), '\n\t"\\Aé😀é😀/')


def test_tokens_by_id() -> None:
    assert read("start: <[12]>").start == TokenSet((12,))


CALCULATOR = r"""
?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul
?atom: NUMBER -> number
     | "-" atom -> neg
     | NAME
     | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
"""


@pytest.mark.parametrize("text", ["1+2*3", "-(a-1.5)", "(1", "1++2", "a*-b", "", "x_1-2e3", "1 + 2"])
def test_a_calculator_agrees_with_xgrammar(text: str) -> None:
    assert matches(read(CALCULATOR), text) == _is_grammar_accept_string(xgrammar.Grammar.from_lark(CALCULATOR), text)


atoms = st.sampled_from(['"a"', '"b"', '"ab"', '"A"i', '"a".."b"', "/[ab]/", "/a+b?/", "x", "X"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(" ".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: f"({' | '.join(options)})"),
        inner.map(lambda part: f"[{part}]"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", " ~ 2", "~0..2"])).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=5,
)


@settings(deadline=None)
@given(expressions, expressions)
def test_random_texts_agree_with_xgrammar(first: str, second: str) -> None:
    text = f'start: {first}\n | {second}\nx: "a" x "b" | "b"\nX: "b"'
    short = ["".join(word) for length in range(4) for word in itertools.product("ab", repeat=length)]
    theirs = xgrammar.Grammar.from_lark(text)
    assert language(read(text), "ab", 3) == {word for word in short if _is_grammar_accept_string(theirs, word)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('start: "a"', True),
        ('\n# c ::=\n// d\n  ?start.1 : "a"', True),
        ('%import common.INT\nstart: INT "::="', True),
        ('assign: NAME "::=" VALUE', True),
        ("start{x}: x", True),
        ('root ::= "a"', False),
        ('# start: "a"\nroot ::= "a:"', False),
        ('root[temperature=1] ::= "a"', False),
        ("root\n::= a", False),
        ("", False),
        ("anything", False),
    ],
)
def test_telling_lark_from_gbnf(text: str, expected: bool) -> None:
    assert lark.looks_like_lark(text) == expected


@pytest.mark.parametrize("text", ['root :: "a"', 'root := "a"', "a :\n= b", "?a.2 : : b"])
def test_a_slip_for_the_sign_of_gbnf_is_no_lark(text: str) -> None:
    assert not lark.looks_like_lark(text)


@pytest.mark.parametrize(
    ("text", "location", "says"),
    [
        ('root: "a"', None, "no rule named 'start'"),
        ('start: "a"\nb', "2:1", "'b' is not defined"),
        ("start: b", "1:8", "'b' is not defined"),
        ("start: B", "1:8", "'B' is not defined"),
        ('start: "a"\nstart: "b"', "2:1", "already defined at 1:1"),
        ('%import common.INT\nINT: "1"\nstart: INT', "2:1", "already defined at 1:1"),
        ('start: "a', "1:8", "never closed"),
        ('start: "a\n"', "1:8", "never closed"),
        ("start: /a", "1:8", "never closed"),
        ('start: ("a"', "1:8", "never closed"),
        ('start: ["a")', "1:12", "closes nothing"),
        ('start: "a"]', "1:11", "closes nothing"),
        ("start: * ", "1:8", "nothing to repeat"),
        ('start: "a" ~', "1:12", "expected a repetition"),
        ('start: "a"~3..2', "1:11", "ends before it starts"),
        ('start: "b".."a"', "1:8", "ends before it starts"),
        ('start: "ab".."c"', "1:8", "one character"),
        ('start: "a"..b', "1:13", "last character"),
        (r'start: "\q"', "1:9", "unknown escape"),
        (r'start: "ab\ud800"', "1:11", "surrogate"),
        ('start: "é"i', "1:9", "ASCII"),
        ("start: /ab(?=c)/", "1:11", "lookaround"),
        ("start: /a/i", "1:11", "flags"),
        ("start: 'a'", "1:8", "unexpected character"),
        ("start: aB", "1:8", "unexpected character"),
        ('aB: "a"\nstart: aB', "1:1", "mixes cases"),
        ("start: a{b}", "1:8", "template"),
        ('start{a}: "a"', "1:6", "template"),
        ('start[max_tokens=3]: "a"', "1:6", "rule option"),
        ('start: "a" -> 1', "1:12", "'-'"),
        ("start: <think>", "1:8", "by its id"),
        ('%ignore " "\nstart: "a"', "1:1", "%ignore"),
        ('start: "a"\n%declare A', "2:1", "%declare"),
        ("%import other.A\nstart: A", "1:1", "'common'"),
        ("%import common.PYTHON\nstart: PYTHON", "1:1", "PYTHON"),
        ("%import common.INT INT\nstart: INT", "1:1", "'common'"),
        ('%json {"a": 1}\nstart: "a"', "1:1", "%json"),
        ('start: "a\ud800"', "1:10", "surrogate"),
    ],
)
def test_faults_are_located(text: str, location: str | None, says: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        read(text)
    assert (caught.value.location, says in caught.value.message) == (location, True), caught.value


def test_a_definition_as_in_gbnf_has_larks_as_a_hint() -> None:
    with pytest.raises(InvalidGrammar) as caught:
        read('start: x\nx ::= "b"')
    assert (caught.value.location, caught.value.hint) == ("2:3", "a rule is written name: expression")
    with pytest.raises(InvalidGrammar) as caught:
        read('root: "a"')
    assert caught.value.hint == "name the entry rule 'start'; in GBNF, a rule is written root ::= expression"
    with pytest.raises(InvalidGrammar) as caught:
        read('begin: "a"')
    assert caught.value.hint == "name the entry rule 'start'"


def test_a_start_that_never_ends_is_unsatisfiable() -> None:
    with pytest.raises(UnsatisfiableConstraint) as caught:
        read('a: "a"\nstart: start a')
    assert caught.value.location == "2:1"


@pytest.mark.parametrize(
    ("text", "options", "limit"),
    [
        ('start: "aa"', GrammarOptions(max_grammar_bytes=10), "max_grammar_bytes"),
        ("start: [[[]]]", GrammarOptions(max_nesting=2), "max_nesting"),
        ('start: ("a"~3)~3', GrammarOptions(max_repetition=8), "max_repetition"),
        ("start: /a{9}/", GrammarOptions(max_repetition=8), "max_repetition"),
        ("start: a\na: /a/", GrammarOptions(max_nodes=3), "max_nodes"),
    ],
)
def test_limits(text: str, options: GrammarOptions, limit: str) -> None:
    with pytest.raises(ConstraintTooLarge) as caught:
        lark.parse(text, options)
    assert limit in caught.value.message


HOSTILE = [
    "start: " + "(" * 200_000,
    'start: "' + "\\" * 200_001,
    "start: /" + "\\/" * 100_000,
    "start: " + "a " * 100_000,
]
HOSTILE += ["start: " + "[" * 256 + "/a/ " * 20_000 + "]" * 256, "%import common(" + "A," * 100_000, "a\n" * 200_000]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_cost_little(text: str) -> None:
    refusal = refusal_of(text)
    assert len(str(refusal)) < 300


@settings(deadline=None)
@given(st.text(alphabet='start:"a b|()[]*+?~.1/\\\n%-><{}', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for source in (text, f"start: {text}"):
        refusal = refusal_of(source)
        assert refusal is None or refusal.message
