"""The same constraint on both engines behind the same session: equal masks, equal answers, on random walks."""

import json
import random

import numpy as np
import pytest

from infernix_plugin.grammar.build import build
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import CompiledGrammar, ConstraintCompiler, MaskState, TokenDomain
from infernix_plugin.matching.engines.lexing import ambiguity
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.meter import Allowance
from infernix_plugin.matching.engines.select import as_terminal
from infernix_plugin.matching.engines.xgrammar import XgrammarEngine
from tests.json_schema import (
    test_formats,
    test_lower,
    test_members,
    test_multiples,
    test_negation,
    test_references,
    test_unevaluated,
)
from tests.json_schema_suite import cases
from tests.json_schema_suite.judge import verdicts
from tests.oracles import xgrammar_engine
from tests.oracles.json_vocabulary import DOMAIN, PIECES, PREFERRED, STOP
from tests.oracles.plain import TooLargeError, plain

OPTIONS = GrammarOptions(max_whitespace=2)
ENGINES = (
    XgrammarEngine(DOMAIN, cache_bytes=64 << 20, allowance=Allowance(0.1, 2.0)),
    LlguidanceEngine(DOMAIN, Allowance(0.1, 2.0)),
)
MAX_STATES = 40
STEPS = 20
EVERY = 3
"""Of the suite's schemas, one in so many."""

SCHEMAS = [
    *(case[0] for case in test_lower.ACCEPTED),
    *(case[0] | {"type": "object"} for case in test_members.MEMBERS),
    *(case[0] for case in test_negation.CASES),
    *(case[0] for case in test_multiples.CASES),
    *(case[0] for case in test_formats.SCHEMAS),
    *(case[0] for case in test_references.LANGUAGES),
    *(case[0] for case in test_unevaluated.LANGUAGES),
]
SUITE = [
    verdict.group
    for file in cases.files()
    if file.startswith("draft2020-12/") and "/optional/" not in file
    for verdict in verdicts(file)[::EVERY]
    if verdict.refusal is None and verdict.satisfiable
]
REGEXES = ["", "a*", "(ab|aab)*b", "[^a]{2,3}", "a.b", r"\w+@\w+", "(a|b){0,5}c?", "é+|中", "a{3}|a{5}", r"[\s\S]*"]
REGEXES += ["x?y*z+", r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", r"\u00e9|\x41", r'"([^"\\]|\\.)*"', r"-?\d+"]
REGEXES += ["(true|false|null)(,(true|false))*"]
GRAMMARS = [
    'root ::= item{1,3}\nitem ::= [ab] "," | "c"+',
    'root ::= ("ab" | "a" "b"? "foo")* "bar"',
    r'root ::= [^\n"]* [\n]',
    'root ::= word (" " word)*\nword ::= [a-z]{2,4} | "\\u4e2d"',
    "root ::= digits (. digits)*\ndigits ::= [0-9]+ [é-中]?",
]
CHOICES = [["a", "ab", "abc"], ["", "foo", "foobar"], ["é", "中", "é中"], ['"', "\\", "\n"], ["true", "false", "true"]]
CHOICES += [["12", "120", "1.5"]]


def programs(grammar: Grammar) -> tuple[CompiledGrammar, CompiledGrammar]:
    """The grammar on xgrammar, which is given the automata of intersections as rules, and as it is on llguidance."""
    xgrammar, llguidance = ENGINES
    written_out = plain(grammar, MAX_STATES)
    return CompiledGrammar(DOMAIN, xgrammar.compile(written_out)), CompiledGrammar(DOMAIN, llguidance.compile(grammar))


def new_rows(count: int) -> np.ndarray:
    return np.full((count, DOMAIN.mask_words), 0x5A5A5A5A, dtype=np.int32)


def members(row: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def named(tokens: set[int]) -> list[bytes]:
    return sorted(b"<end>" if token == STOP else PIECES[token] for token in tokens)


def walk(pair: tuple[CompiledGrammar, CompiledGrammar], rng: random.Random) -> None:
    """Compare the two at every step of one output, also what they say of drafts and of illegal tokens."""
    sessions = [program.session() for program in pair]
    output = b""
    for _ in range(STEPS):
        rows = [new_rows(1)[0] for _ in sessions]
        states = {session.fill_mask(row) for session, row in zip(sessions, rows, strict=True)}
        allowed, other = map(members, rows)
        assert allowed == other, (output, named({*allowed} - {*other}), named({*other} - {*allowed}))
        assert len(states) == 1, output
        assert sessions[0].complete == sessions[1].complete, output
        if states != {MaskState.READY}:
            return
        preferred = [token for token in allowed if token in PREFERRED] or allowed
        drafts = [rng.choice(preferred), *(rng.randrange(DOMAIN.vocab_size) for _ in range(2))]
        ahead = [new_rows(len(drafts) + 1) for _ in sessions]
        found = [session.lookahead(drafts, table) for session, table in zip(sessions, ahead, strict=True)]
        assert found[0] == found[1], (output, drafts)
        assert np.array_equal(*ahead), (output, drafts)
        token = rng.choice(preferred if rng.random() < 0.7 else allowed)
        refused = rng.randrange(DOMAIN.vocab_size)
        for session in sessions:
            assert refused in allowed or not session.accept(refused)
            assert session.accept(token), (output, token)
        if token == STOP:
            return
        output += PIECES[token]


def compare(constraint: OutputConstraint, seed: int) -> None:
    """Walk a constraint on both engines; skipped where xgrammar cannot be given the whole of it."""
    grammar = as_terminal(build(constraint, OPTIONS))
    assert ambiguity(grammar, DOMAIN) is None
    try:
        pair = programs(grammar)
    except TooLargeError:
        pytest.skip(f"an automaton has more than {MAX_STATES} states")
    walk(pair, random.Random(seed))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_of_every_keyword(schema):
    text = test_lower.source(schema)
    compare(OutputConstraint.json_schema(text), seed=len(text))


@pytest.mark.parametrize("group", SUITE, ids=lambda group: group.description)
def test_schemas_of_the_suite(group):
    compare(OutputConstraint.json_schema(cases.written(group.schema)), seed=len(group.description))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pattern", REGEXES)
def test_regexes(pattern, seed):
    compare(OutputConstraint.regex(pattern), seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_regular_grammars(grammar, seed):
    compare(OutputConstraint.grammar(grammar), seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("choices", CHOICES, ids=json.dumps)
def test_choices(choices, seed):
    compare(OutputConstraint.choice(choices), seed)


OWN_READER = [
    # The entry rule is never referred to: xgrammar itself gets the masks of such a rule wrong.
    'root ::= nested\nnested ::= "(" nested ")" | [ab]*',
    'root ::= equal\nequal ::= "a" equal "b" | ""',
    "# both\nroot ::= some  # a comment\nsome ::= object | list\n"
    'object ::= "(" (pair ("b" pair)*)? ")"\npair ::= "a" "x"? some\nlist ::= "é" some{0,2} "b"',
    'root ::= expression\nexpression ::= term ("a" term)*\nterm ::= "b" | "(" expression ")"',
    'root ::= mirror\nmirror ::= "a" mirror "a" | "b" mirror "b" | "x"',
    'root ::= text\ntext ::= [^()]{1,3} ("(" text ")")? [\\U00010000-\\U0010ffff]?',
    'root ::= left | "é"+\nleft ::= "a" right | "b"\nright ::= ")" left | [x-z]{2,3}',
]


@pytest.mark.parametrize("grammar", OWN_READER)
def test_grammars_mean_what_xgrammar_reads_in_them(grammar):
    theirs = xgrammar_engine.Engine(grammar)
    domain = TokenDomain([*xgrammar_engine.VOCABULARY, b"<end>"], stop=[xgrammar_engine.STOP])
    program = ConstraintCompiler(domain).compile(OutputConstraint.grammar(grammar))
    row = np.zeros(domain.mask_words, dtype=np.int32)
    for seed in range(3):
        rng, session, output = random.Random(seed), program.session(), b""
        for _ in range(STEPS):
            session.fill_mask(row)
            allowed = members(row)
            assert set(allowed) == theirs.legal(output), output
            ascii_only = [token for token in allowed if token < 128 or token == xgrammar_engine.STOP]
            token = rng.choice(ascii_only if ascii_only and rng.random() < 0.8 else allowed)
            assert session.accept(token)
            if token == xgrammar_engine.STOP:
                break
            output += xgrammar_engine.VOCABULARY[token]
