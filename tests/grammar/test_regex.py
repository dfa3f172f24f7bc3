"""Regular expressions: Python's ``re`` as the oracle where the dialects agree, fixed examples where they do not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge, InvalidRegex
from infernix_plugin.grammar import regex
from infernix_plugin.grammar.analysis import is_regular
from infernix_plugin.grammar.ir import And, Grammar, Lexeme, Node, Not, walk
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_oracle import language, matches

OPTIONS = GrammarOptions()
ALPHABET = "ab1_- \n"


def whole(pattern: str) -> Node:
    return regex.parse(pattern, OPTIONS)


def refusal_of(read: Callable[[str, GrammarOptions], Node], pattern: str) -> ConstraintError | None:
    try:
        read(pattern, OPTIONS)
    except ConstraintError as refused:
        return refused
    return None


def words(node: Node, alphabet: str, longest: int) -> set[str]:
    return language(Grammar({"root": node}), alphabet, longest)


def accepts(pattern: str, text: str) -> bool:
    return matches(Grammar({"root": whole(pattern)}), text)


def finds(pattern: str, text: str) -> bool:
    return matches(Grammar({"root": regex.search(pattern, OPTIONS)}), text)


# A pattern as a pair: in our dialect, and the same in Python's.
class_members = st.sampled_from(
    ["a", "b", "1", "_", "-", " ", "a-b", "0-9", "\\d", "\\w", "\\s", "\\n", "\\x61", "\\-"]
)
classes = st.tuples(st.booleans(), st.lists(class_members, min_size=1, max_size=3, unique=True)).map(
    # A hyphen that could form a range goes last, where both dialects read it as itself.
    lambda parts: f"[{'^' if parts[0] else ''}{''.join(sorted(parts[1], key=lambda member: member == '-'))}]"
)
plain_atoms = ["a", "b", "1", "_", "-", "ab", ".", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\n", "\\u0061", "\\x62"]
atoms = st.one_of(st.sampled_from(plain_atoms), classes).map(lambda atom: (atom, atom))
quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,2}", "*?", "+?", "??", "{1,2}?"])


def grouped(part: tuple[str, str], opening: str) -> tuple[str, str]:
    return f"{opening}{part[0]})", f"(?:{part[1]})"


def joined(parts: list[tuple[str, str]], glue: str) -> tuple[str, str]:
    return glue.join(ours for ours, _ in parts), glue.join(theirs for _, theirs in parts)


patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined(parts, "")),
        st.builds(
            grouped,
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: joined(parts, "|")),
            st.sampled_from(["(", "(?:", "(?<name>"]),
        ),
        st.builds(
            lambda part, quantifier: (f"(?:{part[0]}){quantifier}", f"(?:{part[1]}){quantifier}"), inner, quantifiers
        ),
    ),
    max_leaves=5,
)
short_texts = ["".join(text) for length in range(4) for text in itertools.product(ALPHABET, repeat=length)]


@settings(deadline=None)
@given(patterns)
def test_whole_match_agrees_with_python(pattern: tuple[str, str]) -> None:
    ours, theirs = pattern
    oracle = re.compile(theirs, re.ASCII)
    assert words(whole(ours), ALPHABET, 3) == {text for text in short_texts if oracle.fullmatch(text)}


anchored = st.tuples(st.booleans(), patterns, st.booleans()).map(
    lambda parts: (
        f"{'^' if parts[0] else ''}{parts[1][0]}{'$' if parts[2] else ''}",
        rf"{chr(92) + 'A' if parts[0] else ''}(?:{parts[1][1]}){chr(92) + 'Z' if parts[2] else ''}",
    )
)


@settings(deadline=None)
@given(st.lists(anchored, min_size=1, max_size=3))
def test_search_agrees_with_python(alternatives: list[tuple[str, str]]) -> None:
    ours, theirs = joined(alternatives, "|")
    oracle = re.compile(theirs, re.ASCII)
    found = words(regex.search(ours, OPTIONS), "ab1\n", 3)
    assert found == {text for text in short_texts if set(text) <= set("ab1\n") and oracle.search(text)}


@settings(deadline=None)
@given(st.lists(anchored, min_size=1, max_size=3))
def test_anchors_do_not_change_a_whole_match(alternatives: list[tuple[str, str]]) -> None:
    ours = joined(alternatives, "|")[0]
    assert whole(ours) == whole(ours.replace("^", "").replace("$", "")) or "[^" in ours


@settings(deadline=None)
@given(patterns)
def test_result_is_a_plain_regular_tree(pattern: tuple[str, str]) -> None:
    node = regex.search(pattern[0], OPTIONS)
    assert is_regular(node)
    assert not any(isinstance(part, And | Not | Lexeme) for part in walk(node))


@pytest.mark.parametrize(
    ("pattern", "members", "others"),
    [
        (r"\d", "059", "a٣５"),
        (r"\w", "aZ_0", "é-ªµ"),
        (r"\W", "é- \n", "a_"),
        (
            r"\s",
            "\t\n\v\f\r \u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
            "a\u180e\u200b\x1c\x85\u2060",
        ),
        (r"\S", "a\u200b\x85", " \u2028\ufeff"),
        (".", "a\0\v\f\x85\U0010ffff", "\n\r\u2028\u2029"),
        ("[^]", "a\n\r\U0010ffff", ""),
        ("[^a]", "b\né😀", "a"),
        (r"[\b]", "\b", "b"),
        (r"[\d-x]", "5-x", "ef"),
        (r"[\w-.]", "a-.", ",/"),
        ("[-a]", "-a", "b"),
        ("[a-]", "-a", "b"),
        (r"[a\]]", "a]", "\\"),
        ("[.*$^(|)]", ".*$^(|)", "a"),
        (r"[\x41-\u0043]", "ABC", "D"),
        ("[α-γ]", "αβγ", "δa"),
        ("[😀-😂]", "😀😁😂", "😃"),
        (r"\cA", "\x01", "A"),
        (r"\cj", "\n", "j"),
        (r"\0", "\0", "0"),
        (r"\t|\v|\f|\r", "\t\v\f\r", "tvfr\n"),
        (r"\/|\-|\_|\@|\"|\ ", '/-_@" ', "\\"),
        (r"\^|\$|\\|\.|\*|\+|\?|\(|\)|\[|\]|\{|\}|\|", "^$\\.*+?()[]{}|", "a"),
        ("]|}|{", "]}{", "["),
    ],
)
def test_characters(pattern: str, members: str, others: str) -> None:
    assert [char for char in members if not accepts(pattern, char)] == []
    assert [char for char in others if accepts(pattern, char)] == []


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("", [""], ["a"]),
        ("^$", [""], ["a"]),
        ("a|", ["a", ""], ["aa"]),
        ("()", [""], ["a"]),
        ("(|a)b", ["b", "ab"], ["a"]),
        ("^a|b$", ["a", "b"], ["ab", "ax"]),
        ("a{2}", ["aa"], ["a", "aaa", "a{2}"]),
        ("a{0}b", ["b"], ["ab"]),
        ("a{x}", ["a{x}"], ["a"]),
        ("a{", ["a{"], ["a"]),
        ("{a}", ["{a}"], ["a"]),
        ("a{1,2}{", ["a{", "aa{"], ["a"]),
        ("(ab)+?", ["ab", "abab"], ["", "aba"]),
        ("(?<year>[0-9]{4})", ["2024"], ["24"]),
        ("[]a", [], ["", "a", "]a"]),
        ("[]|b", ["b"], [""]),
        ("[]*c", ["c"], [""]),
        ("😀+", ["😀😀"], ["", "😀a"]),
        (r"\n.", ["\na"], ["\n\n"]),
    ],
)
def test_whole_matches(pattern: str, accepted: list[str], refused: list[str]) -> None:
    assert [text for text in accepted if not accepts(pattern, text)] == []
    assert [text for text in refused if accepts(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("a", ["a", "xay", "\na\n"], ["", "x"]),
        ("^a", ["a", "ab"], ["ba", "\na"]),
        ("a$", ["a", "ba"], ["ab", "a\n"]),
        ("^a$|b", ["a", "xbx"], ["aa", "xa"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("", ["", "x"], []),
        ("^", ["", "x"], []),
        ("$", ["", "x"], []),
        ("^$", [""], ["x"]),
        ("[]", [], ["", "x"]),
    ],
)
def test_searches(pattern: str, accepted: list[str], refused: list[str]) -> None:
    assert [text for text in accepted if not finds(pattern, text)] == []
    assert [text for text in refused if finds(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "offset", "says"),
    [
        (r"a\1", 1, "back-reference"),
        (r"(?<n>a)\k<n>", 7, "back-reference"),
        (r"\p{L}", 0, "property"),
        (r"[\P{L}]", 1, "property"),
        ("(?i)a", 0, "flag"),
        ("(?i:a)", 0, "flag"),
        ("(?-s:a)", 0, "flag"),
        ("(?P<n>a)", 0, "(?P...)"),
        ("(?>a)", 0, "atomic"),
        ("(?#a)", 0, "comment"),
        ("(?&a)", 0, "group syntax"),
        ("(?", 0, "group syntax"),
        ("a++", 2, "possessive"),
        ("a{2}+", 4, "possessive"),
        ("a**", 2, "quantifier"),
        ("a+??", 3, "quantifier"),
        ("a{1}{2}", 4, "quantifier"),
        ("*a", 0, "nothing to repeat"),
        ("a|+", 2, "nothing to repeat"),
        ("(?:?)", 3, "nothing to repeat"),
        ("{2}", 0, "nothing to repeat"),
        ("^*", 1, "nothing to repeat"),
        ("a{2,1}", 1, "ends before it starts"),
        ("a{,2}", 1, "lower count"),
        ("(a", 0, "never closed"),
        ("a)", 1, "closes nothing"),
        ("x[a", 1, "never closed"),
        ("[a-", 0, "never closed"),
        ("[b-a]", 1, "ends before it starts"),
        ("[a", 0, "never closed"),
        ("a\\", 1, "backslash"),
        ("[\\", 1, "backslash"),
        (r"\ud83d\ude00", 0, "surrogate"),
        (r"[\ud800-\udfff]", 1, "surrogate"),
        ("a\ud800", 1, "surrogate"),
        (r"\u{61}", 0, "not supported"),
        (r"\u12", 0, "hexadecimal"),
        (r"\xg1", 0, "hexadecimal"),
        (r"\c1", 0, "unknown escape"),
        (r"\q", 0, "unknown escape"),
        (r"\e", 0, "unknown escape"),
        (r"\h", 0, "unknown escape"),
        (r"\é", 0, "unknown escape"),
        (r"\01", 0, "octal"),
        (r"[\1]", 1, "octal"),
        (r"[\B]", 1, "unknown escape"),
        (r"\Aa\Z", 0, "anchor"),
    ],
)
def test_faults_are_located(pattern: str, offset: int, says: str) -> None:
    for read in (regex.parse, regex.search):
        with pytest.raises(InvalidRegex) as caught:
            read(pattern, OPTIONS)
        assert (caught.value.location, says in caught.value.message) == (f"offset {offset}", True), caught.value


@pytest.mark.parametrize(
    ("pattern", "offset", "says"),
    [
        ("a(?=b)", 1, "lookaround"),
        ("(?!a)b", 0, "lookaround"),
        ("(?<=a)b", 0, "lookaround"),
        ("(?<!a)b", 0, "lookaround"),
        (r"\bword", 0, "word boundary"),
        (r"a\B", 1, "word boundary"),
        ("a^", 1, "'^'"),
        ("^^a", 1, "'^'"),
        ("(^a)", 1, "'^'"),
        ("(a|^b)", 3, "'^'"),
        ("a$b", 1, "'$'"),
        ("(a$)", 2, "'$'"),
        ("a$$", 1, "'$'"),
        ("$*", 0, "'$'"),
    ],
)
def test_assertions_inside_are_for_searches(pattern: str, offset: int, says: str) -> None:
    with pytest.raises(InvalidRegex) as caught:
        whole(pattern)
    assert (caught.value.location, says in caught.value.message) == (f"offset {offset}", True), caught.value


@pytest.mark.parametrize(
    ("pattern", "options", "limit"),
    [
        ("éé", GrammarOptions(max_regex_bytes=3), "max_regex_bytes"),
        ("((()))", GrammarOptions(max_nesting=2), "max_nesting"),
        ("a{9}", GrammarOptions(max_repetition=8), "max_repetition"),
        ("(?:a{3}){3}", GrammarOptions(max_repetition=8), "max_repetition"),
        ("abc", GrammarOptions(max_nodes=3), "max_nodes"),
        ("a{" + "9" * 5000 + "}", OPTIONS, "digits"),
    ],
)
def test_limits(pattern: str, options: GrammarOptions, limit: str) -> None:
    with pytest.raises(ConstraintTooLarge) as caught:
        regex.parse(pattern, options)
    assert limit in caught.value.message


def test_limits_are_inclusive() -> None:
    regex.parse("((a{2}){4})", GrammarOptions(max_regex_bytes=11, max_nesting=2, max_repetition=8))


HOSTILE = ["(" * 60_000, "(a|b" * 250 + ")*" * 250, "[" * 60_000, "a{1,2" * 13_000, "a?" * 32_000, "(a*)*" * 13_000]
HOSTILE += ["[^\\d" * 16_000, "[" + "a-z\\w" * 13_000 + "]", "\\" * 60_000, "|" * 60_000, "a{,1" * 16_000]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_patterns_cost_little(pattern: str) -> None:
    refusals = [refusal_of(read, pattern) for read in (regex.parse, regex.search)]
    assert max(len(str(refusal)) for refusal in refusals) < 300


@settings(deadline=None)
@given(st.text(alphabet="ab(|)[]^$*+?{},-.\\dpux0123:<=!é\n", max_size=30))
def test_any_pattern_is_read_or_refused(pattern: str) -> None:
    refusal = refusal_of(regex.parse, pattern)
    assert refusal is None or refusal.message
    assert refusal is not None or refusal_of(regex.search, pattern) is None
