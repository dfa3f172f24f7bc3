"""One entry for every kind of constraint."""

from __future__ import annotations

import json

import pytest

from infernix_plugin.errors import (
    ConstraintError,
    ConstraintTooLarge,
    InvalidChoice,
    InvalidGrammar,
    InvalidRegex,
    InvalidSchema,
    UnsatisfiableConstraint,
)
from infernix_plugin.grammar.analysis import undefined
from infernix_plugin.grammar.build import build
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_oracle import language, matches

OPTIONS = GrammarOptions()


@pytest.mark.parametrize(
    ("constraint", "accepted", "refused"),
    [
        (OutputConstraint.grammar('root ::= "a" root | "b"'), ["b", "aab"], ["", "a"]),
        (OutputConstraint.grammar('start: "a" start | "b"'), ["b", "aab"], ["", "a"]),
        (OutputConstraint.regex("^(a|b)+$"), ["a", "abba"], ["", "xa"]),
        (OutputConstraint.regex(""), [""], ["a"]),
        (OutputConstraint.choice(["yes", "no", ""]), ["yes", "no", ""], ["y", "yesno"]),
        (OutputConstraint.json_object(), ["{}", '{"a":[1,{}]}'], ["[]", "1", "{", ""]),
        (OutputConstraint.json_schema({"enum": [1, "a"]}), ["1", '"a"'], ["2", "a", ""]),
        (OutputConstraint.json_schema(True), ["1", "null", "[[]]"], ["", "nul"]),
    ],
)
def test_every_kind(constraint: OutputConstraint, accepted: list[str], refused: list[str]) -> None:
    grammar = build(constraint, OPTIONS)
    assert not undefined(grammar)
    assert [text for text in accepted if not matches(grammar, text)] == []
    assert [text for text in refused if matches(grammar, text)] == []


@pytest.mark.parametrize(
    ("constraint", "error"),
    [
        (OutputConstraint.grammar("root ::= root"), UnsatisfiableConstraint),
        (OutputConstraint.grammar("start: start"), UnsatisfiableConstraint),
        (OutputConstraint.regex("[]"), UnsatisfiableConstraint),
        (OutputConstraint.regex("a[]|[]{2}b"), UnsatisfiableConstraint),
        (OutputConstraint.json_schema(False), UnsatisfiableConstraint),
        (OutputConstraint.grammar("root ::= x"), InvalidGrammar),
        (OutputConstraint.grammar("start: x"), InvalidGrammar),
        (OutputConstraint.grammar(""), InvalidGrammar),
        (OutputConstraint.regex("("), InvalidRegex),
        (OutputConstraint.choice([]), InvalidChoice),
        (OutputConstraint.json_schema("{"), InvalidSchema),
        (OutputConstraint.grammar('root ::= "\ud800"'), InvalidGrammar),
        (OutputConstraint.regex("\ud800"), InvalidRegex),
    ],
)
def test_faults_have_their_own_class(constraint: OutputConstraint, error: type[ConstraintError]) -> None:
    with pytest.raises(error):
        build(constraint, OPTIONS)


def test_a_lone_surrogate_is_no_choice() -> None:
    """Refused where the constraint is made: sorting and hashing must not see it."""
    with pytest.raises(InvalidChoice, match="surrogate") as fault:
        OutputConstraint.choice(["a", "\ud800"])
    assert fault.value.location == "[1]"


@pytest.mark.parametrize(
    ("constraint", "limit"),
    [
        (OutputConstraint.grammar('root ::= "aaaa"'), "max_grammar_bytes"),
        (OutputConstraint.grammar('start: "aaaa"'), "max_grammar_bytes"),
        (OutputConstraint.regex("aaaaaaaaa"), "max_regex_bytes"),
        (OutputConstraint.choice(["a", "b", "c"]), "max_choices"),
        (OutputConstraint.choice(["aaaaaaaaa"]), "max_choice_bytes"),
        (OutputConstraint.json_schema(json.dumps({"const": "a" * 9})), "max_schema_bytes"),
    ],
)
def test_sizes_are_checked_for_every_kind(constraint: OutputConstraint, limit: str) -> None:
    tight = GrammarOptions(
        max_grammar_bytes=8, max_schema_bytes=8, max_regex_bytes=8, max_choices=2, max_choice_bytes=8
    )
    with pytest.raises(ConstraintTooLarge, match=limit):
        build(constraint, tight)


def test_a_regex_of_nothing_but_dead_branches_keeps_the_live_one() -> None:
    assert language(build(OutputConstraint.regex("[]a|b[]|ab"), OPTIONS), "ab", 3) == {"ab"}
