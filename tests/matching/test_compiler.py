"""From constraints to sessions."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from infernix_plugin import (
    ConstraintCompiler,
    ConstraintError,
    InvalidGrammar,
    MaskState,
    OutputConstraint,
    UnsatisfiableConstraint,
)
from infernix_plugin.errors import ConstraintTooLarge, UnsupportedSchema
from infernix_plugin.framing.phases import Framing
from infernix_plugin.grammar.ir import And, Grammar, Lexeme, Literal, Not, Ref, alt, chars, repeat, seq
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import Outcome, Session
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.select import Engines, as_terminal
from tests.matching.support import CONTROL, DOMAIN, PIECES, STOP, ids, mask, new_row

A, X = PIECES.index(b"a"), CONTROL["<x>"]
THINKING = Framing(thinking=True, close_id=X)


@pytest.fixture
def compiler() -> ConstraintCompiler:
    return ConstraintCompiler(DOMAIN)


def write(session: Session, text: str) -> bool:
    """Whether the text can be written byte by byte."""
    for byte in text.encode():
        token = DOMAIN.byte_token(byte)
        assert token is not None
        if not session.accept(token):
            return False
    return True


@pytest.mark.parametrize(
    ("constraint", "member", "other"),
    [
        (OutputConstraint.json_object(), '{"a": 1}', "[1]"),
        (OutputConstraint.json_schema({"type": "array", "items": {"const": 1}}), "[1, 1]", '["a"]'),
        (
            OutputConstraint.json_schema({"properties": {"a": {"type": "string", "maxLength": 1}}}),
            '{"b": "aa"}',
            '{"a":"aa"}',
        ),
        (OutputConstraint.json_schema({"enum": ["a", "ab", 1, {"a": [1]}]}), '{"a": [1]}', '"b"'),
        (OutputConstraint.grammar('root ::= "[" root? "]"'), "[[]]", "]"),
        (OutputConstraint.regex("(ab|a){2,3}"), "aba", "b"),
        (OutputConstraint.choice(["a", "ab", "b 1"]), "b 1", "b1"),
    ],
)
def test_every_kind_of_constraint(compiler, constraint, member, other) -> None:
    session = compiler.compile(constraint).session()
    assert write(session, member)
    assert session.complete
    assert session.accept(STOP)
    session = compiler.compile(constraint).session()
    assert not (write(session, other) and session.complete)


def test_outcomes_and_stats(compiler) -> None:
    constraint = OutputConstraint.regex("a+")
    first = compiler.prepare(constraint)
    second = compiler.prepare(OutputConstraint.regex("a+"))
    assert (first.outcome, second.outcome) == (Outcome.BUILT, Outcome.HIT)
    assert second.compiled is first.compiled
    assert first.seconds > 0
    stats = compiler.stats()
    assert (stats.built, stats.hits, stats.entries) == (1, 1, 1)
    assert stats.bytes == first.compiled.memory_bytes > 0


def test_the_framing_is_part_of_the_identity(compiler) -> None:
    constraint = OutputConstraint.regex("a")
    plain, framed = compiler.compile(constraint), compiler.compile(constraint, framing=THINKING)
    assert plain is not framed
    session = framed.session()
    assert STOP not in mask(session)[1]
    assert session.preview([A, A, X, PIECES.index(b"\n\n"), A, STOP]) == 6


def test_properties_in_another_order_are_another_constraint(compiler) -> None:
    one = OutputConstraint.json_schema('{"properties": {"a": {}, "b": {}}}')
    other = OutputConstraint.json_schema('{"properties": {"b": {}, "a": {}}}')
    assert compiler.compile(one) is not compiler.compile(other)


def test_many_threads_share_one_build(compiler) -> None:
    barrier = threading.Barrier(8)

    def ask() -> tuple[int, Outcome, bool]:
        barrier.wait(20)
        preparation = compiler.prepare(OutputConstraint.json_object())
        session = preparation.compiled.session()
        return id(preparation.compiled), preparation.outcome, write(session, '{"a": [1, 1]}') and session.complete

    with ThreadPoolExecutor(8) as pool:
        results = [future.result() for future in [pool.submit(ask) for _ in range(8)]]
    assert len({compiled for compiled, _, _ in results}) == 1
    assert sum(outcome is Outcome.BUILT for _, outcome, _ in results) == 1
    assert all(written for _, _, written in results)


def test_a_grammar_in_use_outlives_its_eviction() -> None:
    small = ConstraintCompiler(DOMAIN, cache_bytes=1)
    session = small.compile(OutputConstraint.regex("aa")).session()
    assert small.stats().entries == 0
    assert write(session, "aa")
    assert small.prepare(OutputConstraint.regex("aa")).outcome is Outcome.BUILT


def test_a_refusal_is_remembered(compiler) -> None:
    for _ in range(2):
        with pytest.raises(ConstraintError):
            compiler.compile(OutputConstraint.regex("("))
    assert compiler.stats().failed == 1


@pytest.mark.parametrize("pattern", ["z", "[z]a", "zz|zy"])
def test_a_language_that_the_vocabulary_cannot_begin_is_unsatisfiable(compiler, pattern) -> None:
    with pytest.raises(UnsatisfiableConstraint):
        compiler.compile(OutputConstraint.regex(pattern))


def test_the_empty_output_alone_is_satisfiable(compiler) -> None:
    assert mask(compiler.compile(OutputConstraint.regex("")).session()) == (MaskState.READY, {STOP})


@pytest.mark.parametrize("token", [X, STOP, CONTROL["<|image_pad|>"], len(PIECES), DOMAIN.vocab_size])
@pytest.mark.parametrize("form", ["Token", "ExcludeToken"])
def test_only_text_tokens_may_be_named_by_content(compiler, token, form) -> None:
    with pytest.raises(InvalidGrammar, match=f"token id {token} "):
        compiler.compile(OutputConstraint.grammar(f'root ::= {form}({token}) "a"'))


def test_negated_tokens_of_content_are_never_control_tokens(compiler) -> None:
    session = compiler.compile(OutputConstraint.grammar(f"root ::= ExcludeToken({A})")).session()
    assert mask(session)[1] == {token for token in range(len(PIECES)) if DOMAIN.token_class(token) == 1} - {A}


def test_xgrammar_keeps_token_terminals_apart(compiler) -> None:
    """Its rule cache takes rules for equal that differ only in the ids of their token terminals."""
    for token in (A, PIECES.index(b"b")):
        session = compiler.compile(OutputConstraint.grammar(f"root ::= Token({token})")).session()
        assert mask(session)[1] == {token}


STRUCTURAL_TAG = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<x>"],
        "tags": [{"begin": "<x>", "content": {"type": "json_schema", "json_schema": {"const": 1}}, "end": "<y>"}],
    },
}


def test_structural_tags_see_control_tokens_by_their_spelling(compiler) -> None:
    text = json.dumps(STRUCTURAL_TAG)
    preparation = compiler.prepare_structural_tag(text)
    session = preparation.compiled.session()
    assert {A, X, STOP} <= mask(session)[1]
    assert session.preview([A, X, PIECES.index(b"1"), CONTROL["<y>"], STOP]) == 5
    session.discard()
    assert session.preview([X, A]) == 1
    assert compiler.prepare_structural_tag(text).outcome is Outcome.HIT


@pytest.mark.parametrize("text", ["{", "{}", '{"type": "structural_tag", "format": {"type": "nothing"}}'])
def test_a_bad_structural_tag_is_an_invalid_grammar(compiler, text) -> None:
    with pytest.raises(InvalidGrammar):
        compiler.compile_structural_tag(text)


def engine_of(grammar: Grammar) -> str:
    return Engines(DOMAIN, 1 << 20, GrammarOptions()).compile(grammar).engine


RECURSIVE = alt(seq(Literal("["), Ref("root"), Literal("]")), chars("ab"))


@pytest.mark.parametrize(
    ("node", "engine"),
    [
        (RECURSIVE, "xgrammar"),
        (alt(seq(Literal("["), Ref("root"), Literal("]")), Lexeme(chars("ab"))), "llguidance"),
        (alt(RECURSIVE, Lexeme(chars("ab"))), "xgrammar"),
        (seq(Lexeme(repeat(chars("ab"), 1, 2)), Literal("a")), "xgrammar"),
        (Lexeme(And((repeat(chars("ab")), Not(Literal("a"))))), "llguidance"),
    ],
)
def test_the_engine_follows_from_the_grammar(node, engine) -> None:
    assert engine_of(Grammar({"root": node})) == engine


def test_an_intersection_that_no_engine_can_run_is_refused() -> None:
    lexeme = Lexeme(And((repeat(chars("ab"), 1), Not(Literal("a")))))
    for node in (seq(lexeme, Literal("a")), seq(lexeme, chars("1"), Literal(" "))):
        with pytest.raises(UnsupportedSchema, match="exactly"):
            Engines(DOMAIN, 1 << 20, GrammarOptions()).compile(Grammar({"root": node}))


def test_regular_content_becomes_one_terminal() -> None:
    regular = Grammar({"root": seq(Ref("word"), Literal(" "), Ref("word")), "word": repeat(chars("ab"), 1)})
    assert as_terminal(regular).rules == {
        "root": Lexeme(seq(repeat(chars("ab"), 1), Literal(" "), repeat(chars("ab"), 1)))
    }
    for other in (Grammar({"root": RECURSIVE}), Grammar({"root": seq(Lexeme(chars("ab")), Literal(" "))})):
        assert as_terminal(other) is other


def test_a_grammar_over_a_limit_of_llguidance_goes_to_xgrammar_if_it_can(monkeypatch) -> None:
    def give_up(*_: object) -> None:
        raise ConstraintTooLarge("over a limit")

    monkeypatch.setattr(LlguidanceEngine, "made", give_up)
    assert engine_of(Grammar({"root": Lexeme(chars("ab"))})) == "xgrammar"
    with pytest.raises(ConstraintTooLarge, match="over a limit"):
        engine_of(Grammar({"root": Lexeme(And((chars("ab"), Not(Literal("a")))))}))


def test_first_masks_are_not_shared_between_sessions(compiler) -> None:
    compiled = compiler.compile(OutputConstraint.regex("a"))
    row = new_row()
    compiled.session().fill_mask(row)
    row[:] = 0
    assert ids(compiled.first_row) == {A}
    assert mask(compiled.session())[1] == {A}


def test_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, infernix_plugin as p; p.ConstraintCompiler, p.TokenDomain, p.OutputConstraint\n"
        "found = {'vllm', 'torch', 'xgrammar', 'transformers', 'llguidance'} & set(sys.modules)\n"
        "assert not found, found\n"
        "assert set(p.__all__) <= set(dir(p)) and all(getattr(p, name) for name in p.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
