"""Arrays of unique items, through sessions: masks against enumeration, walks against the validator, the transaction."""

import json
import random
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from infernix_plugin.errors import InvalidContinuation, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.ir import Grammar, Literal, TokenSet, alt
from infernix_plugin.grammar.json_schema import lower
from infernix_plugin.grammar.json_schema.prune import pruned
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.places import Place, UniqueItems
from infernix_plugin.matching import CompiledGrammar, ConstraintCompiler, MaskState, Session, TokenDomain
from infernix_plugin.matching.companions import lookahead
from infernix_plugin.matching.engines.select import as_terminal
from infernix_plugin.matching.terminals import restrict_terminals

COMPACT = GrammarOptions(max_whitespace=0)
SPACED = GrammarOptions(max_whitespace=2)
BYTES = [bytes([byte]) for byte in range(256)]
THINK, CLOSE, STOP = "<think>", "</think>", "<end>"


def domain_of(pieces: list[bytes], bytes_too: bool = True) -> TokenDomain:
    """A vocabulary of some pieces, usually beside all single bytes, with markers of a thinking model."""
    text = list(dict.fromkeys(pieces + (BYTES if bytes_too else [])))
    markers = {marker: len(text) + index for index, marker in enumerate((THINK, CLOSE, STOP))}
    return TokenDomain([*text, *(marker.encode() for marker in markers)], control=markers, stop=[markers[STOP]])


def compiled(schema: Any, domain: TokenDomain, options: GrammarOptions = COMPACT, **how: Any) -> CompiledGrammar:
    return ConstraintCompiler(domain, options=options).compile(OutputConstraint.json_schema(schema), **how)


def mask(session: Session) -> tuple[MaskState, set[int]]:
    row = np.full((session._domain.vocab_size + 31) // 32, 0x5A5A5A5A, dtype=np.int32)
    state = session.fill_mask(row)
    return state, set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


# Masks against enumeration --------------------------------------------------------------------------------------


def array_of(spellings: list[str], least: int, most: int) -> list[str]:
    """All arrays of so many of the spelled items that repeat none of them as binary64 numbers."""
    unique = Draft202012Validator({"uniqueItems": True})
    found = []
    for count in range(least, most + 1):
        for items in product(spellings, repeat=count):
            text = "[" + ",".join(items) + "]"
            if unique.is_valid(json.loads(text, parse_int=float)):
                found.append(text)
    return found


def listed(values: list[Any], least: int = 0, most: int = 2) -> tuple[Any, list[str]]:
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": least, "maxItems": most}
    return schema, array_of([json.dumps(value, ensure_ascii=False) for value in values], least, most)


def unique(items: Any, spellings: list[str], least: int = 0, most: int = 3, **more: Any) -> tuple[Any, list[str]]:
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": least, "maxItems": most, **more}
    return schema, array_of(spellings, least, most)


DIGIT_STRINGS = {"type": "string", "pattern": "^[ab]$"}
SMALL = [str(number) for number in range(9, 13)]
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, "é"]}},
    "required": ["a"],
    "additionalProperties": False,
}
PAIRS = ["{" + f'"a":{first}' + second + "}" for first in ("true", "false") for second in ("", ',"b":1', ',"b":"é"')]
FLAGS = array_of(["true", "false"], 0, 2)
FINITE = {
    "strings that begin alike": listed(["", "a", "ab", "abc", "b", "é", "è", '"', "\\", "aa"]),
    "numbers in several spellings": listed([1, 1.0, 10, 100, 0, -0.0, 0.1, 0.10000000000000001, 2**53, 2**53 + 1]),
    "all of a list": listed([*"abcdefghi"], 1, 2),
    "integers of an interval": unique({"type": "integer", "minimum": 9, "maximum": 12}, SMALL, 0, 4),
    "more than there are": unique({"type": "integer", "minimum": 11, "maximum": 12}, ["11", "12"], 0, 3),
    "strings of a pattern": unique(DIGIT_STRINGS, ['"a"', '"b"'], 1, 3),
    "objects": unique(PAIR, PAIRS, 0, 2),
    "arrays": unique({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, FLAGS, 2, 2),
    "two kinds": unique({"anyOf": [{"type": "null"}, DIGIT_STRINGS]}, ["null", '"a"', '"b"'], 0, 4),
    "by position": (
        {
            "type": "array",
            "prefixItems": [{"enum": [1, 2]}, {"enum": [1, 2, 3]}],
            "items": {"enum": [2, 3]},
            "uniqueItems": True,
            "maxItems": 4,
        },
        [
            text
            for text in array_of(["1", "2", "3"], 0, 4)
            if all(item in allowed for item, allowed in zip(json.loads(text), ([1, 2], [1, 2, 3], [2, 3], [2, 3])))  # noqa: B905
        ],
    ),
    "inside an object": (
        {
            "type": "object",
            "properties": {
                "a": unique(DIGIT_STRINGS, [])[0],
                "b": {"type": "array", "items": DIGIT_STRINGS, "maxItems": 2},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        [
            f'{{"a":{first},"b":[{second}]}}'
            for first in array_of(['"a"', '"b"'], 0, 2)
            for second in ("", '"a"', '"b"', '"a","a"', '"a","b"', '"b","a"', '"b","b"')
        ],
    ),
}


def check_masks(domain: TokenDomain, grammar: CompiledGrammar, words: list[bytes], rng: random.Random) -> None:
    """Walk through the masks once, and compare each with what the words allow."""
    session, written, stop = grammar.session(), b"", domain.stop_ids[0]
    rest = words
    while True:
        state, found = mask(session)
        expected = {
            token
            for token in range(domain.vocab_size - 3)
            if any(word.startswith(written + domain.token_bytes(token)) for word in rest)
        }
        if written in rest:
            expected.add(stop)
        spelled = {domain.token_bytes(token) for token in found ^ expected}
        assert (state, found) == (MaskState.READY, expected), (written, spelled)
        for token in range(domain.vocab_size):
            if token not in found and domain.is_generable(token):
                assert not session.accept(token), (written, domain.token_bytes(token))
        token = rng.choice(sorted(found))
        assert session.accept(token)
        if token == stop:
            return
        written += domain.token_bytes(token)
        rest = [word for word in rest if word.startswith(written)]


@pytest.mark.parametrize("name", FINITE)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_masks_are_those_of_the_enumerated_language(name: str, data: Any, seed: int) -> None:
    """The vocabulary has pieces of right and of wrong texts, so tokens end items, repeat them, and stop halfway."""
    schema, texts = FINITE[name]
    words = [text.encode() for text in texts]
    rng = random.Random(seed)
    sources = [*rng.sample(words, min(len(words), 8))]
    sources += [b",".join([word[1:-1]] * 2) + b"]" for word in sources[:4]]
    pieces = []
    for _ in range(60):
        source = rng.choice(sources)
        start = rng.randrange(len(source))
        pieces.append(source[start : start + rng.randrange(1, 14)] or b"[")
    domain = domain_of(pieces)
    grammar = compiled(schema, domain)
    for _ in range(4):
        check_masks(domain, grammar, words, rng)


def test_a_vocabulary_without_single_bytes_is_walked_too() -> None:
    schema, texts = FINITE["strings that begin alike"]
    words = [text.encode() for text in texts]
    pieces = [b"[", b"]", b'["', b'"a', b'"b', b"bc", b'"', b'b"', b",", b'","a', b'"]', b'a"', "é".encode(), b'","']
    domain = domain_of(pieces, bytes_too=False)
    grammar = compiled(schema, domain)
    session = grammar.session()
    for piece in (b'["', b'a"', b","):
        assert session.accept(pieces.index(piece))
    state, found = mask(session)
    assert state is MaskState.READY
    assert {domain.token_bytes(token) for token in found} == {b'"a', b'"b', b'"'}
    assert any(word.startswith(b'["a","a') for word in words)


# Walks against the validator ------------------------------------------------------------------------------------

item_schemas = st.sampled_from(
    [
        {},
        {"type": "string"},
        {"type": "string", "maxLength": 1},
        {"type": "string", "pattern": "^[ab]{0,2}$"},
        {"type": "integer"},
        {"type": "integer", "minimum": -3, "maximum": 12},
        {"type": "number"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"enum": [1, 1.0, "a", "b", None, True, [1], {"a": 1}, {"a": 1.0}, [], 2]},
        {"type": ["string", "null", "boolean"]},
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}},
        {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False},
        {"type": "array", "items": {"enum": [0, 1]}, "maxItems": 2},
        {"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 0, "maximum": 9}},
    ]
)


@st.composite
def schemas(draw: Any) -> Any:
    array = {"type": "array", "items": draw(item_schemas), "uniqueItems": True, "minItems": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        array["prefixItems"] = [{"type": ["integer", "string"]}]
    match draw(st.sampled_from(["root", "member", "nested", "recursive"])):
        case "member":
            return {"type": "object", "properties": {"x": array, "y": {"type": "array"}}, "required": ["x"]}
        case "nested":
            return {"type": "array", "items": array, "uniqueItems": True}
        case "recursive":
            rest = {"$ref": "#/$defs/list"}
            return {"$ref": "#/$defs/list", "$defs": {"list": {**array, "minItems": 0, "items": {"anyOf": [rest, {}]}}}}
        case _:
            return array


PIECES = [
    *(b'["a', b'","', b'"],["', b'"a"', b'","a","', b",1", b"1,1,", b",1,", b"[1,1", b"},{", b'},{"a":1},', b"true,"),
    *(b",null", b'{"a":1', b'{"a":', b"1.0", b".0,", b"e0", b"]]", b"],[", b"[],", b"],[]", b"{},", b'"b"', b', "'),
    *(b"\n", b": 1", b'":', b'"a":1}', b'"x":[', b"\xc3", b"\xa9", b"00", b"10"),
]
DOMAIN = domain_of([*PIECES, *[bytes([byte]) for byte in range(32, 127)]], bytes_too=False)


def walk(grammar: CompiledGrammar, rng: random.Random, steps: int, framed: list[int] | None = None) -> bytes | None:
    """What a random walk through the masks writes, if it ends; closing brackets and stops come first after a while."""
    session, written = grammar.session(), b""
    for token in framed or []:
        assert session.accept(token)
    for step in range(steps):
        state, found = mask(session)
        assert state is MaskState.READY, written
        if DOMAIN.stop_ids[0] in found and (step > steps // 3 or rng.random() < 0.1):
            return written
        tokens = sorted(found - set(DOMAIN.stop_ids))
        if not tokens:
            return written
        closing = [token for token in tokens if DOMAIN.token_bytes(token) in (b"]", b"}", b'"')]
        busy = [token for token in tokens if token < len(PIECES)]
        choices = closing if closing and step > steps // 3 else busy if busy and rng.random() < 0.5 else tokens
        token = rng.choice(choices or tokens)
        assert session.accept(token), (written, DOMAIN.token_bytes(token))
        written += DOMAIN.token_bytes(token)
    return None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas(), seed=st.integers(0, 1 << 32), thinking=st.booleans())
def test_walks_through_the_masks_never_repeat_an_item_and_never_get_stuck(
    schema: Any, seed: int, thinking: bool
) -> None:
    close = DOMAIN.control_id(CLOSE)
    assert close is not None
    framing, framed = CONTENT, []
    if thinking:  # what looks like JSON in the reasoning is none
        framing = Framing(thinking=True, close_id=close)
        text = b"[1,1,[[\n\n"
        framed = [*(_token(bytes([byte])) for byte in text if byte >= 32), close, _token(b"\n"), _token(b"\n")]
    too_many = '"minItems": 3' in json.dumps(schema)  # it may be more than there are, or than can be counted
    with suppress(UnsatisfiableConstraint, UnsupportedSchema) if too_many else nullcontext():
        grammar = compiled(schema, DOMAIN, SPACED, framing=framing)
        check_walks(grammar, schema, seed, framed)


def check_walks(grammar: CompiledGrammar, schema: Any, seed: int, framed: list[int]) -> None:
    validator = Draft202012Validator(schema)
    for offset in range(3):
        written = walk(grammar, random.Random(seed + offset), 60, framed)
        if written is not None:
            assert validator.is_valid(json.loads(written, parse_int=float)), written


def _token(piece: bytes) -> int:
    return next(token for token in range(DOMAIN.vocab_size) if DOMAIN.token_bytes(token) == piece)


def tokens_of(text: str, rng: random.Random) -> list[int]:
    """A random way to cut a text into tokens."""
    data, tokens = text.encode(), []
    while data:
        fitting = [token for token in range(DOMAIN.vocab_size - 3) if data.startswith(DOMAIN.token_bytes(token))]
        tokens.append(rng.choice(fitting))
        data = data[len(DOMAIN.token_bytes(tokens[-1])) :]
    return tokens


json_values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -3, 2.5, 12, 100, "", "a", "ab", 'a"', "b\\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    items=st.lists(json_values, max_size=6),
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
    seed=st.integers(0, 1 << 32),
)
def test_arrays_pass_exactly_when_the_validator_says_so(items: list[Any], separators: Any, seed: int) -> None:
    grammar = compiled({"type": "array", "uniqueItems": True}, DOMAIN, SPACED)
    text = json.dumps(items, separators=separators)
    session = grammar.session()
    valid = Draft202012Validator({"uniqueItems": True}).is_valid(items)
    accepted = all(map(session.accept, tokens_of(text, random.Random(seed)))) and session.complete
    assert accepted == valid


# The transaction ------------------------------------------------------------------------------------------------

SET = {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", 1, 10, None, [], [1], [2], "x"]}}
NESTED = {
    "type": "array",
    "uniqueItems": True,
    "items": {"anyOf": [SET, {"type": ["string", "number", "object", "null"]}]},
}
PROGRAM = compiled(NESTED, DOMAIN)


def same(left: Session, right: Session) -> None:
    assert mask(left) == mask(right)
    assert (left.complete, left.terminated) == (right.complete, right.terminated)


def replayed(tokens: list[int], grammar: CompiledGrammar = PROGRAM) -> Session:
    session = grammar.session()
    for token in tokens:
        assert session.accept(token)
    return session


def drafts_from(tokens: list[int], rng: random.Random) -> list[int]:
    """Mostly legal drafts; in half of the cases one that is not."""
    session, drafts = replayed(tokens), list[int]()
    for _ in range(rng.randrange(10)):
        state, found = mask(session)
        if state is not MaskState.READY or rng.random() < 0.07:
            drafts.append(rng.randrange(DOMAIN.vocab_size))
            break
        drafts.append(rng.choice(sorted(found)))
        session.accept(drafts[-1])
    return drafts


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_is_tried_and_taken_back_the_position_is_that_of_a_replay(seed: int) -> None:
    rng = random.Random(seed)
    committed: list[int] = []
    session = replayed(committed)
    for _ in range(8):
        if session.terminated:
            break
        drafts = drafts_from(committed, rng)
        match rng.choice(["lookahead", "discard", "commit", "accept"]):
            case "lookahead":
                rows = np.zeros((len(drafts) + 1, DOMAIN.mask_words), dtype=np.int32)
                states = session.lookahead(drafts, rows)
                for index, state in enumerate(states):
                    if state is MaskState.READY and index:
                        own = np.zeros(DOMAIN.mask_words, dtype=np.int32)
                        assert replayed(committed + drafts[:index]).fill_mask(own) is state
                        assert np.array_equal(own, rows[index])
            case "discard":
                session.preview(drafts)
                session.discard()
            case "commit":
                taken = session.preview(drafts)
                session.commit()
                committed += drafts[:taken]
            case "accept":
                for draft in drafts[:3]:
                    if session.accept(draft):
                        committed.append(draft)
        same(session, replayed(committed))


def test_forks_go_their_own_ways() -> None:
    tokens = tokens_of('["a",', random.Random(1))
    session = replayed(tokens)
    scout = session.scout()
    other = scout.fork()
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    for token in tokens_of('"b",', random.Random(2)):
        assert scout.accept(token)
    for token in tokens_of('"', random.Random(2)):
        assert scout.accept(token)
        assert other.accept(token)
    one, two = (
        set(np.flatnonzero(np.unpackbits(m.fill(row).view(np.uint8), bitorder="little"))) for m in (scout, other)
    )
    closing = _token(b'b"') if b'b"' in PIECES else _token(b"b")
    for matcher, refused in ((scout, True), (other, False)):
        assert matcher.accept(closing)
        assert matcher.accept(_token(b'"')) != refused
    assert one
    assert two
    same(session, replayed(tokens))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 60))
def test_a_session_after_a_prefix_is_one_that_was_fed_its_tokens(seed: int, cut: int) -> None:
    written = walk(PROGRAM, random.Random(seed), 40) or b'[[1,10],"a",'
    prefix = written[:cut]
    fed = PROGRAM.session()
    assert all(fed.accept(_token(bytes([byte]))) for byte in prefix)
    same(PROGRAM.session(prefix), fed)


@pytest.mark.parametrize(("prefix", "legal"), [(b'["a","a"', 7), (b"[1,1.0,", 6), (b"[[1],[1]", 7), (b'[["a","a"', 7)])
def test_a_prefix_that_repeats_an_item_is_refused_where_it_does(prefix: bytes, legal: int) -> None:
    with pytest.raises(InvalidContinuation) as refused:
        PROGRAM.session(prefix)
    assert refused.value.location == f"offset {legal}"


def test_a_prefix_that_leaves_nothing_but_repetitions_is_refused() -> None:
    items = {"enum": [1, 2, 3, 4, 5, 6, 7, 8, "x", "xy"]}
    grammar = compiled({"type": "array", "uniqueItems": True, "items": items}, DOMAIN)
    assert grammar.session(b'["x","xy').complete is False
    with pytest.raises(InvalidContinuation):
        grammar.session(b'["xy","x","x')
    with pytest.raises(InvalidContinuation):
        grammar.session(b'["x","xy","')


def test_a_search_that_is_given_up_lets_the_token_through(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"enum": [*range(9), "long" * 5]}}
    assert not compiled(schema, DOMAIN).session(b'["longlonglonglonglong",').accept(_token(b'"'))
    monkeypatch.setattr(lookahead, "MAX_LOOKS", 3)
    session = compiled(schema, DOMAIN).session(b'["longlonglonglonglong",')
    assert session.accept(_token(b'"'))
    for char in "longlonglonglonglong":
        if not session.accept(_token(char.encode())):
            break
    else:
        assert not session.accept(_token(b'"'))  # no repetition gets through


# The specification on its way ------------------------------------------------------------------------------------

NINE = {"type": "array", "items": {"enum": [*range(9)]}, "uniqueItems": True}


def test_every_step_between_the_schema_and_the_engine_keeps_the_places() -> None:
    """A step that drops them would let repetitions through."""
    spec = UniqueItems((Place(unique=True, supply=9, rest=0),))
    grammar = Grammar({"root": alt(Literal("[]"), TokenSet((0,), exclude=True))}, unique=spec)
    assert lower(json.dumps(NINE), COMPACT).unique is not None
    assert restrict_terminals(grammar, DOMAIN).unique is spec
    assert pruned(grammar, {"root"}).unique is spec
    terminal = as_terminal(replace(grammar, rules={"root": Literal("[]")}))
    assert terminal.unique is spec
    framed = Framing(thinking=True, close_id=7, separator="\n\n").apply(grammar).unique
    assert framed is not None
    assert (framed.places, framed.opening, framed.separator) == (spec.places, 7, "\n\n")


@pytest.mark.parametrize("options", [COMPACT, SPACED])
@pytest.mark.parametrize("separator", ["\n\n", "", None])
def test_repetitions_are_refused_in_every_framing(options: GrammarOptions, separator: str | None) -> None:
    close = DOMAIN.control_id(CLOSE)
    assert close is not None
    framing = CONTENT if separator is None else Framing(thinking=True, close_id=close, separator=separator)
    opening = [] if separator is None else [_token(b","), close, *[_token(b"\n")] * len(separator)]
    grammar = compiled(NINE, DOMAIN, options, framing=framing)
    for text, valid in (("[1,2,3]", True), ("[1,2,1]", False), ("[1,1]", False)):
        session = replayed(opening, grammar)
        assert all(map(session.accept, tokens_of(text, random.Random(3)))) == valid


def test_before_the_reasoning_ends_nothing_is_followed() -> None:
    close = DOMAIN.control_id(CLOSE)
    assert close is not None
    grammar = compiled(NINE, DOMAIN, framing=Framing(thinking=True, close_id=close))
    repeated = tokens_of("[1,1,1", random.Random(4))
    session = replayed([*repeated, close, _token(b"\n"), _token(b"\n"), *tokens_of("[1,", random.Random(4))], grammar)
    assert not session.accept(_token(b"1")) or not session.accept(_token(b"]"))
