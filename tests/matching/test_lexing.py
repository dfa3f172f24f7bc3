"""Which grammars a longest-match lexer cuts exactly."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.errors import UnsatisfiableConstraint
from infernix_plugin.grammar import json_schema
from infernix_plugin.grammar.emit_lark import emit_lark, literal_pieces
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Alt,
    And,
    CharSet,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Seq,
    TokenSet,
    alt,
    chars,
    complement,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import CompiledGrammar, MaskState, TokenDomain
from infernix_plugin.matching.engines import llguidance
from infernix_plugin.matching.engines.lexing import ambiguity
from infernix_plugin.matching.engines.lexing.joints import Joints
from infernix_plugin.matching.engines.lexing.json_tokens import piece_symbol, symbols_of
from infernix_plugin.matching.engines.lexing.proof import joints_ambiguity
from infernix_plugin.matching.engines.lexing.token_kinds import only_json_tokens
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.meter import Allowance
from tests.matching.support import CONTROL, DOMAIN, PIECES, compiled, legal, mask, words

X, Y = CONTROL["<x>"], CONTROL["<y>"]
SPACE = Lexeme(repeat(chars(" \n"), 0, 2))
CHARACTER = alt(complement(chars('"\\')), seq(Literal("\\"), chars('"\\')))
STRING = Lexeme(seq(Literal('"'), repeat(CHARACTER), Literal('"')))
WORD = Lexeme(repeat(chars("ab1"), 1, 3))
BYTES = TokenDomain([bytes([byte]) for byte in range(256)])
LINE = Lexeme(seq(repeat(chars("ab "), 1), Literal("\n")))


@pytest.mark.parametrize(
    "node",
    [
        EPSILON,
        seq(
            Literal("{"),
            SPACE,
            optional(seq(STRING, SPACE, Literal(":"), SPACE, alt(STRING, WORD), SPACE)),
            Literal("}"),
        ),
        alt(Literal('{"a":1}'), seq(Literal("{"), SPACE, Literal('"b"'))),
        alt(Literal('"a"'), Literal('"ab"'), STRING),
        alt(Literal("1"), Literal("12")),
        Lexeme(And((STRING.item, Not(Literal('"a"'))))),
        alt(Lexeme(seq(Literal('"'), And((repeat(CHARACTER, 0, 9), Not(Literal("a")))), Literal('"'))), STRING),
        seq(repeat(TokenSet((X,), exclude=True)), TokenSet((X,)), Literal("\n\n"), alt(STRING, WORD)),
        seq(TokenSet((X,)), Literal("\n\n"), LINE),
        alt(TokenSet((X,)), STRING),
        seq(LINE, STRING),
        repeat(seq(WORD, Literal(","))),
    ],
    ids=str,
)
def test_exact(node: Node) -> None:
    assert ambiguity(Grammar({"root": node}), DOMAIN) is None


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (seq(WORD, Literal("a")), "a word"),
        (repeat(WORD), "a word"),
        (repeat(WORD, 2, 2), "a word"),
        (seq(WORD, optional(Literal(",")), WORD), "a word"),
        (seq(SPACE, SPACE, Literal("a")), "blanks"),
        (seq(alt(Literal("a"), Literal("ab")), Literal("b")), "a word"),
        (alt(LINE, STRING), "not one JSON token"),
        (alt(Lexeme(seq(Literal('"'), repeat(CHARACTER))), STRING), "not one JSON token"),
        (alt(Literal('"'), STRING), "not one JSON token"),
        (seq(WORD, LINE), "a word"),
        (alt(TokenSet((PIECES.index(b"a"),)), STRING), "text token"),
        (alt(TokenSet((X,), exclude=True), STRING), "text token"),
        (alt(TokenSet((X,)), TokenSet((Y,), exclude=True)), "two ways"),
        (alt(TokenSet((X, Y)), TokenSet((Y,))), "two ways"),
        (alt(TokenSet((X,), exclude=True), TokenSet((Y,), exclude=True)), "two ways"),
    ],
    ids=str,
)
def test_not_shown_to_be_exact(node: Node, reason: str) -> None:
    assert reason in (ambiguity(Grammar({"root": node}), DOMAIN) or "")


def test_joints_are_found_through_rules() -> None:
    rules = {"root": seq(Ref("list"), Literal(";")), "list": alt(seq(Ref("item"), Ref("list")), Ref("item"))}
    assert "a word" in (ambiguity(Grammar({**rules, "item": WORD}), DOMAIN) or "")
    assert ambiguity(Grammar({**rules, "item": seq(WORD, Literal(","))}), DOMAIN) is None


def test_what_is_refused_would_really_be_wrong() -> None:
    """``ab`` is cut as one word, so the mask after ``a`` forgets that ``a`` may be the word and ``b`` follow."""
    node = seq(alt(Literal("a"), Literal("ab")), alt(Literal("b"), Literal(":")))
    session = compiled("llguidance", node).session()
    session.accept(PIECES.index(b"ab"))
    assert session.complete is False
    assert legal({word[2:] for word in words(node) if word[:2] == (97, 98)}) - mask(session)[1]


@pytest.mark.parametrize(
    "schema",
    [
        "{}",
        '{"type": "object", "properties": {"a": {"type": "string", "minLength": 2}, "b": {}}, "required": ["b"]}',
        '{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}], "maxItems": 5}',
        '{"enum": [1, 12, "a", "ab", {"a": 1}, {"ab": [12]}, [], [[]], null, true]}',
        '{"properties": {"a": {"$ref": "#"}, "c": {"anyOf": [{"type": "string"}, {"const": "x"}, {"maximum": 5}]}}}',
    ],
)
@pytest.mark.parametrize("max_whitespace", [0, 2])
def test_json_schemas_are_exact(schema: str, max_whitespace: int) -> None:
    assert ambiguity(json_schema.lower(schema, GrammarOptions(max_whitespace=max_whitespace)), DOMAIN) is None


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ('{"a b": -1.5e3, "\\"": []}', ["{", '"a b"', ":", " ", "-1.5e3", ",", " ", '"\\""', ":", " ", "[", "]", "}"]),
        ('a"b', ["a", '"', "b"]),
        ("\n\n<tool>\té中", ["\n\n", "<", "tool", ">", "\t", "é", "中"]),
    ],
)
def test_literals_are_cut_like_json(text: str, pieces: list[str]) -> None:
    assert literal_pieces(text) == pieces


@pytest.mark.parametrize(
    "text",
    ["a\\b", "/", "//", "#", "\x00", "\x7f\x80", "é中😀", "\u2028", "~&|*+?{}[]()<>", "%", "a\r\n\tb", "\"'`", " "],
)
@pytest.mark.parametrize("form", ["rule", "terminal", "class", "intersection"])
def test_any_text_survives_the_notation(text: str, form: str) -> None:
    node = {
        "rule": Literal(text),
        "terminal": Lexeme(Literal(text)),
        "class": Lexeme(seq(*(CharSet(((ord(char), ord(char)),)) for char in text))),
        "intersection": Lexeme(And((Literal(text), Not(Literal("other"))))),
    }[form]
    engine = LlguidanceEngine(BYTES, Allowance(0.1, 2.0))
    session = CompiledGrammar(BYTES, engine.compile(Grammar({"root": node}))).session()
    assert session.preview(list(text.encode())) == len(text.encode())
    assert session.complete
    session.discard()
    assert session.preview(list((text + " ").encode())) == len(text.encode())


def test_complements_hold_text_only() -> None:
    not_a = Lexeme(Not(Literal("a")))
    session = compiled("llguidance", not_a).session()
    allowed = mask(session)[1]
    assert PIECES.index(b"\xc3") in allowed
    assert PIECES.index(b"\xa9") not in allowed
    assert PIECES.index(b"\xff") not in allowed
    session.accept(PIECES.index(b"\xc3"))
    assert not session.complete
    assert mask(session) == (MaskState.READY, {PIECES.index(b"\xa9"), PIECES.index(b"\xad\xc3")})


def test_long_tail_recursion_ends() -> None:
    """llguidance completes every round of a right-recursive rule in one step, so it has to be a repetition."""
    rules = {
        "root": alt(seq(TokenSet((X,)), Lexeme(repeat(chars("ab")))), seq(TokenSet((X,), exclude=True), Ref("root")))
    }
    session = compiled("llguidance", Grammar(rules)).session()
    for _ in range(5000):
        assert session.accept(PIECES.index(b"1"))
    assert session.accept(X)
    assert session.complete


def test_deep_nesting_becomes_rules() -> None:
    node: Node = Literal("a")
    for _ in range(300):
        node = Seq((Literal("["), Alt((node, Literal("b"))), Literal("]")))
    grammar = Grammar({"root": node})
    assert max(line.count("(") for line in emit_lark(grammar).splitlines()) < 60
    assert compiled("llguidance", grammar).session(b"[" * 300 + b"a" + b"]" * 300).complete


@pytest.mark.parametrize("node", [chars("ab"), Not(Literal("a")), And((chars("ab"), chars("b")))])
def test_characters_outside_lexemes_cannot_be_written(node: Node) -> None:
    with pytest.raises(ValueError, match="outside a lexeme"):
        emit_lark(Grammar({"root": seq(Literal("x"), node)}))


def test_rules_without_members_are_no_alternative() -> None:
    rules = {"root": alt(Literal("a"), Ref("loop")), "loop": seq(Literal("b"), Ref("loop"))}
    assert mask(compiled("llguidance", Grammar(rules)).session())[1] == {PIECES.index(b"a")}
    with pytest.raises(UnsatisfiableConstraint):
        compiled("llguidance", NEVER)


@given(st.text('a1"\\\\{: \\n\\xe9-', min_size=1, max_size=8))
def test_a_piece_of_a_literal_is_the_lexeme_of_its_text(text: str) -> None:
    """What is read off a piece is what the reader of JSON tokens finds about the same text."""
    for piece in literal_pieces(text):
        assert [piece_symbol(piece)] == symbols_of(Literal(piece))


TERMINALS = st.sampled_from(
    [SPACE, STRING, WORD, LINE, EPSILON, Literal("["), Literal(",a"), Literal(" 1"), Literal(":")]
)
PARTS = st.recursive(
    TERMINALS | st.sampled_from([Ref("root"), Ref("part")]),
    lambda inner: st.builds(seq, inner, inner, inner) | st.builds(alt, inner, inner) | st.builds(repeat, inner),
    max_leaves=8,
)


@given(PARTS, PARTS)
def test_what_is_enough_for_json_is_enough(root: Node, part: Node) -> None:
    """The short proof holds only where the long one does, through repetition, recursion and empty parts."""
    grammar = Grammar({"root": root, "part": alt(part, STRING)})
    if only_json_tokens(grammar.rules):
        assert joints_ambiguity(Joints(grammar), DOMAIN) is None


@pytest.mark.parametrize(
    "rules",
    [
        {"root": seq(WORD, SPACE, WORD)},
        {"root": seq(SPACE, Ref("part"), SPACE), "part": optional(STRING)},
        {"root": seq(Ref("part"), WORD), "part": alt(seq(Literal("["), Ref("part")), WORD)},
        {"root": repeat(alt(Literal("["), WORD), 1, 2)},
        {"root": seq(STRING, LINE)},
        {"root": seq(STRING, TokenSet((X,)))},
    ],
    ids=str,
)
def test_the_short_proof_fails_where_more_than_json_tokens_may_meet(rules: dict[str, Node]) -> None:
    assert not only_json_tokens(rules)


@pytest.mark.parametrize(
    "schema", ["{}", '{"properties": {"a": {"items": {"$ref": "#"}}, "b": {"pattern": "^[ab] "}}}']
)
def test_the_short_proof_is_enough_for_json_schemas(schema: str) -> None:
    assert only_json_tokens(json_schema.lower(schema, GrammarOptions()).rules)


DIGIT, LETTER = chars("1"), chars("ab")


@pytest.mark.parametrize(
    "item",
    [
        seq(repeat(seq(LETTER, DIGIT), 2, 2), optional(alt(DIGIT, Literal("aa"))), Literal("b")),
        repeat(repeat(Literal("ab"), 2, 2), 1, 2),
        repeat(alt(EPSILON, Literal("a")), 0, 2),
        seq(alt(Literal("a"), seq(LETTER, LETTER)), repeat(alt(Literal("1"), Literal("bb")), 1, 2)),
        Alt((Literal(""), Seq((Literal("a"), Alt((Literal("b"), Literal(""))))))),
        seq(optional(repeat(LETTER, 2, 2)), repeat(DIGIT, 0, 2)),
    ],
    ids=str,
)
def test_terminals_are_grouped_as_they_bind(item: Node) -> None:
    members = words(item)
    engine = LlguidanceEngine(BYTES, Allowance(0.1, 2.0))
    grammar = CompiledGrammar(BYTES, engine.compile(Grammar({"root": seq(Literal(":"), Lexeme(item))})))
    for length in range(7):
        for candidate in map(bytes, product(b"ab1", repeat=length)):
            session = grammar.session(b":")
            accepted = session.preview(list(candidate)) == length and session.complete
            assert accepted == (tuple(candidate) in members), candidate


def test_a_session_outlives_an_error_in_the_lexer_it_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies of a start share one lexer; once it is over its limit, none of them can go on with it."""
    character = chars("ab1{}[]:, ")
    wide = Lexeme(And(tuple(seq(repeat(character), Literal("a"), repeat(character, n, n)) for n in (40, 60))))
    monkeypatch.setattr(llguidance, "_LEXER_STEP_FUEL", 300)
    grammar = compiled("llguidance", seq(Literal(":"), wide))
    bystander, victim = grammar.session(), grammar.session()
    colon = PIECES.index(b":")
    assert bystander.accept(colon)
    assert victim.accept(colon)
    while mask(victim)[0] is MaskState.READY and victim.accept(PIECES.index(b"ab")):
        pass
    assert mask(victim)[0] is MaskState.DEAD_END
    assert "over a limit" in str(victim.engine_error)
    assert mask(grammar.session())[0] is MaskState.READY
    assert grammar.session().accept(colon)
    assert bystander.accept(PIECES.index(b"a"))


def test_other_terminals_stand_together_if_none_begins_another():
    apart = Grammar({"root": seq(alt(Lexeme(Literal("<a b>")), Lexeme(Literal("<a c>"))), Lexeme(Literal("</ d>")))})
    assert ambiguity(apart, DOMAIN) is None
    begun = alt(Lexeme(Literal("<a b>")), Lexeme(Literal("<a b> c")))
    assert ambiguity(Grammar({"root": seq(begun, Lexeme(Literal("</ d>")))}), DOMAIN) is not None
    assert ambiguity(Grammar({"root": begun}), DOMAIN) is None, "nothing follows"
    line = Lexeme(seq(Literal("<"), repeat(chars("ab ")), Literal(">")))
    assert ambiguity(Grammar({"root": alt(line, Lexeme(Literal("</ d>")))}), DOMAIN) is None
    for text in ("<a b>", "<a b> c"):
        either = alt(line, Lexeme(Literal(text)))
        assert ambiguity(Grammar({"root": seq(either, Lexeme(Literal("</ d>")))}), DOMAIN) is not None
        assert ambiguity(Grammar({"root": either}), DOMAIN) is None, "nothing follows"


def test_what_only_one_token_leads_to_is_looked_at_apart():
    marker, space = TokenSet((CONTROL["<x>"],)), Lexeme(repeat(chars(" \n"), 0, 3))
    spaced = seq(Literal("1"), space, Literal(","))
    lines = seq(marker, Literal("1"), Lexeme(Literal("\n<end of it>")))
    apart = Grammar({"root": alt(Ref("spaced"), Ref("lines")), "spaced": spaced, "lines": lines})
    assert ambiguity(apart, DOMAIN) is None
    behind_text = Grammar({**apart.rules, "lines": seq(Literal("1"), marker, *lines.items[1:])})
    assert ambiguity(behind_text, DOMAIN) is not None
    entered_twice = Grammar(
        {
            **apart.rules,
            "root": alt(Ref("spaced"), Ref("lines"), Ref("tail")),
            "lines": seq(marker, Ref("tail")),
            "tail": seq(*lines.items[1:]),
        }
    )
    assert ambiguity(entered_twice, DOMAIN) is not None


def test_what_only_one_text_of_its_own_leads_to_is_looked_at_apart():
    heading, other = Lexeme(Literal("<a b>")), Lexeme(Literal("<a c>"))
    line, word = Lexeme(Literal("ab </x>")), Lexeme(repeat(chars("ab"), 1))
    number = Lexeme(repeat(chars("1"), 1))
    rules = {
        "root": alt(Ref("first"), Ref("second")),
        "first": seq(heading, Ref("value"), number),
        "second": seq(other, Lexeme(Literal("{")), line),
        "value": seq(Lexeme(Literal("{")), word, Lexeme(Literal("}"))),
    }
    assert ambiguity(Grammar(rules), DOMAIN) is None
    twice = {**rules, "root": alt(Ref("first"), Ref("second"), seq(heading, Lexeme(Literal("{")), line))}
    assert ambiguity(Grammar(twice), DOMAIN) is not None
    begun = {**rules, "second": seq(Lexeme(Literal("<a b> ")), *rules["second"].items[1:])}
    assert ambiguity(Grammar(begun), DOMAIN) is not None


def test_a_text_may_stand_beside_json_tokens_that_begin_otherwise():
    ending, word = Lexeme(Literal("\n</ end>")), Lexeme(repeat(chars("1"), 1))
    values = seq(Literal("["), word, repeat(seq(Literal(","), word)), alt(Literal("]"), ending))
    assert ambiguity(Grammar({"root": values}), DOMAIN) is None
    comma = Lexeme(Literal(",</ end>"))
    assert ambiguity(Grammar({"root": seq(word, repeat(seq(Literal(","), word)), comma)}), DOMAIN) is not None
    assert ambiguity(Grammar({"root": seq(word, Lexeme(Literal("1 </ end>")))}), DOMAIN) is not None
    assert (
        ambiguity(Grammar({"root": seq(Literal("["), Lexeme(repeat(chars(" \n"), 0, 2)), ending)}), DOMAIN) is not None
    )
