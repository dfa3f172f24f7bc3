"""Rules that add nothing to a grammar's language are named, with their place, and change nothing."""

import logging
from types import SimpleNamespace

import pytest

from infernix_plugin import OutputConstraint
from infernix_plugin.grammar import gbnf, lark
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.rule_reader import MAX_REMARKS
from infernix_plugin.matching.cache import CacheStats, Outcome

OPTIONS = GrammarOptions()


def remarks(text: str) -> list[tuple[str, str]]:
    read = lark.parse if lark.looks_like_lark(text) else gbnf.parse
    return [(remark.message, remark.location) for remark in read(text, OPTIONS).remarks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('root ::= a\na ::= "x"', []),
        ('root ::= "x"\n  b ::= c\nc ::= b', [("b", "derives no finite string", "2:3"), ("c", "derives no", "3:1")]),
        (
            'root ::= "x"\nb ::= "y" c\nc ::= "z"',
            [("b", "cannot be reached from", "2:1"), ("c", "cannot be", "3:1")],
        ),
        ('root ::= "x" | "y" dead\ndead ::= dead "z"', [("dead", "derives no finite string", "2:1")]),
        ('start: "x"\nother: "y"\n', [("other", "cannot be reached from 'start'", "2:1")]),
    ],
)
def test_what_is_named(text, expected):
    found = remarks(text)
    assert [location for _, location in found] == [location for *_, location in expected]
    for (message, _), (name, why, _) in zip(found, expected, strict=True):
        assert message.startswith(f"the rule '{name}' {why}")


def test_the_list_is_bounded_and_so_are_the_names():
    text = 'root ::= "x"\n' + "\n".join(f'{"r" * 500}{index} ::= "y"' for index in range(MAX_REMARKS + 7))
    found = remarks(text)
    assert len(found) == MAX_REMARKS + 1
    assert found[-1] == ("7 more rules add nothing to the language", f"{MAX_REMARKS + 2}:1")
    assert all(len(message) < 120 for message, _ in found)


def test_one_line_in_the_log_when_it_is_built(caplog):
    from infernix_plugin.entrypoints import validation

    text = 'root ::= "secret"\nunused ::= "other secret"'
    compiled = SimpleNamespace(remarks=gbnf.parse(text, OPTIONS).remarks)
    outcomes = iter([Outcome.BUILT, Outcome.HIT])
    compiler = SimpleNamespace(
        prepare=lambda asked, prompt: SimpleNamespace(compiled=compiled, outcome=next(outcomes), seconds=0.0),
        compiler=SimpleNamespace(stats=CacheStats),
    )
    with caplog.at_level(logging.WARNING, logger=validation.__name__):
        validation._compile(compiler, OutputConstraint.grammar(text), [])
        validation._compile(compiler, OutputConstraint.grammar(text), [])
    said = [record.getMessage() for record in caplog.records if record.name == validation.__name__]
    assert said == ["A grammar is enforced, but its rules at 2:1 add nothing; infernix check says why"]
