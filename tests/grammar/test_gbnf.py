"""GBNF: what texts mean, by enumeration and against xgrammar's own reader, and where faults are reported."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xgrammar.testing import _is_grammar_accept_string

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, InvalidGrammar, UnsatisfiableConstraint
from infernix_plugin.grammar import gbnf
from infernix_plugin.grammar.ir import ANY_CHAR, Grammar, TokenSet, walk
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_oracle import language, matches

OPTIONS = GrammarOptions()


def read(text: str) -> Grammar:
    return gbnf.parse(text, OPTIONS)


def refusal_of(text: str) -> ConstraintError | None:
    try:
        read(text)
    except ConstraintError as refused:
        return refused
    return None


def words(text: str, alphabet: str = "ab", longest: int = 4) -> set[str]:
    return language(read(text), alphabet, longest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('root ::= "a"', {"a"}),
        ('root ::= "a" "b" | "b"', {"ab", "b"}),
        ('root ::= "a"?', {"", "a"}),
        ('root ::= "ab"*', {"", "ab", "abab"}),
        ('root ::= "a"+', {"a", "aa", "aaa", "aaaa"}),
        ('root ::= "a"{2}', {"aa"}),
        ('root ::= "a"{3,}', {"aaa", "aaaa"}),
        ('root ::= "a"{1,2} "b"{ 0 , 1 }', {"a", "aa", "ab", "aab"}),
        ('root ::= "a"{,2}', {"", "a", "aa"}),
        ('root ::= "a"{0}', {""}),
        ('root ::= "a" {2}', {"aa"}),
        ('root ::= ("a" | "b" "b")? "a"', {"a", "aa", "bba"}),
        ('root ::= ("a" | ) "b"', {"ab", "b"}),
        ("root ::= ()", {""}),
        ("root ::=", {""}),
        ('root ::= | "a"', {"", "a"}),
        ('root ::= ""', {""}),
        ("root ::= [ab] [^a]", {"ab", "bb"}),
        ("root ::= [a-b]{2}", {"aa", "ab", "ba", "bb"}),
        ("root ::= .", {"a", "b"}),
        ("root ::= [^]", {"a", "b"}),
        ('root ::= root "a" | "b"', {"b", "ba", "baa", "baaa"}),
        ('root ::= "a" root "b" | ""', {"", "ab", "aabb"}),
        ('root ::= x "a" | "b"\nx ::= root "b"', {"b", "bba"}),
        ('root ::= "a"**', {"", "a", "aa", "aaa", "aaaa"}),
        ('root ::= "a"{2}?', {"", "aa"}),
        ('root ::= "a"{2}{2}', {"aaaa"}),
        ('root ::= x\nx ::= "a"\n | "b" # the other\n\n\n | "a" "b"', {"a", "b", "ab"}),
        ('root ::= "a" |\n "b"', {"a", "b"}),
        ('root\n  ::=\n  "a"\n  "b"', {"ab"}),
        ('# before\r\nroot ::= (\r\n "a" # inside\r\n)\r\n', {"a"}),
        ('\n\n  root::="a"x\nx::="b"', {"ab"}),
        ('root ::= a-1_B.x\na-1_B ::= "a"\nx ::= "b"', {"aab", "abb"}),
        ('root ::= a.b\na.b ::= "a"', {"a"}),
        ('root ::= Token\nToken ::= "a"', {"a"}),
        ('root ::= Token ("b")\nToken ::= "a"', {"ab"}),
        ('root ::= "a" (= [^b])', {"a"}),
        ('root ::= x "b"\nx ::= "a" | "b" (= "b" x)', {"ab", "bb"}),
        ('root ::= "a" (= "b")\nx ::= "b"', {"a"}),
    ],
)
def test_enumerated_language(text: str, expected: set[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'root ::= "\n\r\t\\\"\[\]"', '\n\r\t\\"[]'),
        (r'root ::= "\x41\x7a\xe9"', "Azé"),
        (r'root ::= "\x411"', "A1"),
        (r'root ::= "\u00e9\u4E2d\U0001F600"', "é中😀"),
        (r'root ::= "\b\f\v\a\0\e\'\?\/\-"', "\b\f\v\a\0\x1b'?/-"),
        ('root ::= "é中😀"', "é中😀"),
        ('root ::= "a\nb"', "a\nb"),
        ('root ::= "#a" "::=" # comment', "#a::="),
    ],
)
def test_literal_spelling(text: str, expected: str) -> None:
    grammar = read(text)
    assert matches(grammar, expected)
    assert not matches(grammar, expected[:-1])


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (r"[\]]", "]"),
        (r"[\[a]", "[a"),
        (r"[a\-c]", "a-c"),
        ("[a-]", "a-"),
        ("[-a]", "-a"),
        ("[a-c-e]", "abc-e"),
        ("[+--]", "+,-"),
        (r"[\n\t\\]", "\n\t\\"),
        (r"[\u0061-\x63]", "abc"),
        ("[.*+?(){}|$^]", ".*+?(){}|$^"),
        ('["]', '"'),
        ("[α-γ😀]", "αβγ😀"),
    ],
)
def test_class_members(text: str, members: str) -> None:
    everything = [chr(code) for code in range(0x400)] + ["😀", "中"]
    grammar, negated = read(f"root ::= {text}"), read(f"root ::= [^{text[1:]}")
    assert {char for char in everything if matches(grammar, char)} == set(members)
    assert {char for char in everything if matches(negated, char)} == set(everything) - set(members)


def test_any_character_includes_line_breaks_and_the_last_plane() -> None:
    assert all(matches(read("root ::= ."), char) for char in ("\n", "\r", "\u2028", "\0", "\U0010ffff"))
    assert read("root ::= .").start == ANY_CHAR


JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
             string ":" ws value
             ("," ws string ":" ws value)*
           )? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" (
             [^"\\\x7F\x00-\x1F] |
             "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})   # escapes
           )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= "" | " " | "\n" [ \t]{0,20}
"""

ARITHMETIC = r"""
root ::= (expr "=" ws term "\n")+
expr ::= expr [-+*/] ws term | term
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
"""


@pytest.mark.parametrize(
    ("grammar", "samples"),
    [
        (
            JSON,
            [
                *("{}", "[]", "{ }", '{"a":1}', '{"a": -1.5e+1,"b":[true,null]}', '{"a":"\\u00e9"}', '{"a":"\\x"}'),
                *('{"a":01}', '{"a" :1}', '{"a":1,}', '{"é😀":""}', '{"a":"\t"}', '{"a":{"b":{}}} ', "{\n\t\t}"),
            ],
        ),
        (
            ARITHMETIC,
            ["a=1\n", "a+b=1\n", "(a + b)*c= 1\na=2\n", "a=", "a==1\n", "(a=1\n", "1 - 2 - 3 = x_1 \n", "-a=1\n", ""],
        ),
    ],
)
def test_agrees_with_xgrammar(grammar: str, samples: list[str]) -> None:
    ours = {sample: matches(read(grammar), sample) for sample in samples}
    assert ours == {sample: _is_grammar_accept_string(grammar, sample) for sample in samples}
    assert set(ours.values()) == {True, False}


atoms = st.sampled_from(['"a"', '"b"', '"ab"', '""', "[ab]", "[^a]", "[^\\x00-a]", "x"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(" ".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: f"({' | '.join(options)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(expressions, expressions)
def test_random_texts_agree_with_xgrammar(first: str, second: str) -> None:
    text = f'root ::= {first} | {second}\nx ::= "a" x "b" | ""'
    short = ["".join(word) for length in range(4) for word in itertools.product("ab", repeat=length)]
    assert words(text, longest=3) == {word for word in short if _is_grammar_accept_string(text, word)}


def test_token_terminals() -> None:
    text = "root ::= Token(7, 3,7) x !<[5]>\nx ::= ExcludeToken( 12 )* <[4]>"
    grammar = read(text)
    found = {node for body in grammar.rules.values() for node in walk(body) if isinstance(node, TokenSet)}
    assert found == {TokenSet((3, 7)), TokenSet((5,), True), TokenSet((12,), True), TokenSet((4,))}
    assert gbnf.token_terminals(text, OPTIONS) == (
        (7, "1:16"),
        (3, "1:19"),
        (7, "1:21"),
        (5, "1:29"),
        (12, "2:21"),
        (4, "2:29"),
    )


@pytest.mark.parametrize(
    ("text", "location", "says"),
    [
        ("", None, "no rule named 'root'"),
        ('a ::= "x"', None, "no rule named 'root'"),
        ("nonsense", "1:1", "rule definition"),
        ('root = "a"', "1:1", "rule definition"),
        ('root ::= "a" b', "1:14", "'b' is not defined"),
        ('root ::= "a"\nx ::= y', "2:7", "'y' is not defined"),
        ('root ::= "a"\nroot ::= "b"', "2:1", "already defined at 1:1"),
        ('root ::= "a" x ::= "b"', "1:16", "own line"),
        ('root ::= "a', "1:10", "never closed"),
        ('root ::= a b\na ::= "x\nb ::= "y"\n', "2:7", "over the end of its line"),
        ('root ::= "x\ny" "a', "1:10", "over the end of its line"),
        ("root ::= [a", "1:10", "never closed"),
        ("root ::= [a-", "1:10", "never closed"),
        ("root ::= []", "1:10", "empty class"),
        ("root ::= [z-a]", "1:11", "ends before it starts"),
        ('root ::=\n  ("a" | ("b"', "2:10", "never closed"),
        ('root ::= "a")', "1:13", "closes nothing"),
        ("root ::= *", "1:10", "nothing to repeat"),
        ('root ::= "a" | +', "1:16", "nothing to repeat"),
        ('root ::= ("a" | ?)', "1:17", "nothing to repeat"),
        ('root ::= "a"{2,1}', "1:13", "ends before it starts"),
        ('root ::= "a"{x}', "1:13", "expected a repetition"),
        ('root ::= "a"{,}', "1:13", "expected a repetition"),
        ('root ::= "a"{2', "1:13", "expected a repetition"),
        (r'root ::= "a\q"', "1:12", "unknown escape"),
        (r'root ::= "a\d"', "1:12", "unknown escape"),
        ('root ::= "\\', "1:11", "unknown escape"),
        (r'root ::= "\x4g"', "1:11", "2 hexadecimal digits"),
        (r'root ::= "\u12"', "1:11", "4 hexadecimal digits"),
        (r'root ::= "\uD83D\uDE00"', "1:11", "surrogate"),
        (r"root ::= [\ud800-\udfff]", "1:11", "surrogate"),
        (r'root ::= "\U00110000"', "1:11", "U+10FFFF"),
        ('root ::= "é\ud800"', "1:12", "surrogate"),
        ("root ::= 'a'", "1:10", "unexpected character"),
        ('root ::= "a" ;', "1:14", "unexpected character"),
        ("root ::= Token()", "1:15", "token ids"),
        ('root ::= Token("a")', "1:15", "token ids"),
        ("root ::= <think>", "1:10", "by its id"),
        ('root ::= "a" (= "b") "c"', "1:22", "annotation"),
        ('root ::= ("a" (= "b"))', "1:15", "annotation"),
        ('root ::= "a" (= x)', "1:17", "'x' is not defined"),
        ('root ::= "a" (= "b"', "1:14", "never closed"),
        ('root[temperature=0.7] ::= "a"', "1:5", "temperature"),
        ('root ::= x\nx[max_tokens=3] ::= "a"', "2:2", "max_tokens"),
        ('root ::= TagDispatch(("<a>", root))', "1:10", "TagDispatch"),
        ("root ::= TokenTagDispatch((1, root))", "1:10", "TokenTagDispatch"),
        ('root ::= "a" Regex("b+")', "1:14", "Regex"),
        ('root ::= Substring("abc")', "1:10", "Substring"),
    ],
)
def test_faults_are_located(text: str, location: str | None, says: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        read(text)
    assert (caught.value.location, says in caught.value.message) == (location, True), caught.value


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('root :: "a"', "1:1"),
        ('root := "a"', "1:1"),
        ('root = "a"', "1:1"),
        ('root -> "a"', "1:1"),
        ('root ::= x\nx :: "b"', "2:3"),
        ('root ::= x\nx := "b"', "2:3"),
        ('root ::= x\nx = "b"', "2:3"),
        ('root ::= x\nx: "b"', "2:2"),
        ('root ::= x\nx -> "b"', "2:4"),
        ('root ::= "a" x => "b"', "1:16"),
    ],
)
def test_another_sign_of_definition_has_the_right_one_as_a_hint(text: str, location: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        read(text)
    assert caught.value.location == location
    assert "name ::= expression" in caught.value.hint


@pytest.mark.parametrize("text", ["root ::= root", 'root ::= "a" x\nx ::= x "b" | "c" x', 'x ::= "a"\nroot ::= root x'])
def test_a_root_that_never_ends_is_unsatisfiable(text: str) -> None:
    with pytest.raises(UnsatisfiableConstraint) as caught:
        read(text)
    assert caught.value.location == ("2:1" if text.startswith("x") else "1:1")


def test_useless_rules_do_no_harm() -> None:
    assert words('root ::= "a" | loop\nloop ::= loop "b"\nunused ::= "b"') == {"a"}


@pytest.mark.parametrize(
    ("text", "options", "limit"),
    [
        ('root ::= "éé"', GrammarOptions(max_grammar_bytes=14), "max_grammar_bytes"),
        ("root ::= ((()))", GrammarOptions(max_nesting=2), "max_nesting"),
        ('root ::= (("a"{2}){2}{2}){2}', GrammarOptions(max_nesting=2), "max_nesting"),
        ('root ::= "a"{9}', GrammarOptions(max_repetition=8), "max_repetition"),
        ('root ::= ("a"{3} "b"){3}', GrammarOptions(max_repetition=8), "max_repetition"),
        ('root ::= ("a" "b"){3,}{3}', GrammarOptions(max_repetition=8), "max_repetition"),
        ('root ::= "a" x\nx ::= "b" "c"', GrammarOptions(max_nodes=5), "max_nodes"),
        ('root ::= "a"{12345678901}', OPTIONS, "digits"),
        ("root ::= Token(" + "9" * 5000 + ")", OPTIONS, "digits"),
    ],
)
def test_limits(text: str, options: GrammarOptions, limit: str) -> None:
    with pytest.raises(ConstraintTooLarge) as caught:
        gbnf.parse(text, options)
    assert limit in caught.value.message


def test_limits_are_inclusive() -> None:
    text = 'root ::= (("a"{2}){4})'
    gbnf.parse(text, GrammarOptions(max_grammar_bytes=len(text), max_nesting=2, max_repetition=8))


HOSTILE = [
    "root ::= " + "(" * 500_000,
    'root ::= "a"' + "*" * 200_000,
    'root ::= "a"' + "{2}" * 300_000,
    "root ::= " + "a.b" * 50_000,
    "a.b ::=\nroot ::= " + "a.b." * 30_000 + "a",
    "root ::= " + "(" * 256 + '"a" "b" [c] ' * 15_000 + ")" * 256,
    "\n" * 1_000_000,
    "root ::= x" + "\n" * 500_000 + "y",
    "root ::= " + "[" * 200_000,
    "root ::= [" + "\\]" * 100_000 + "]",
    'root ::= "' + "\\n" * 200_000 + '"',
    "\n".join(f"r{i} ::= r{i + 1}" for i in range(10_000)),
    "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} | "a" r0' for i in range(300)) + '\nr300 ::= "b"',
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_cost_little(text: str) -> None:
    refusal = refusal_of(text)
    assert len(str(refusal)) < 300


@settings(deadline=None)
@given(st.text(alphabet='root ::="[]^-\\()*+?{},|.ab12#\n<>!Token', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for source in (text, f"root ::= {text}"):
        refusal = refusal_of(source)
        assert refusal is None or refusal.message
