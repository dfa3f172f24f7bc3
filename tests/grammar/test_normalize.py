"""The normaliser keeps every language, and reaches the shapes that run fast."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given, settings

from infernix_plugin.grammar.analysis import is_regular, references, size
from infernix_plugin.grammar.emit import emit
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Alt,
    And,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    Words,
    alt,
    chars,
    charset,
    complement,
    repeat,
    seq,
    walk,
)
from infernix_plugin.grammar.normalize import normalize
from tests.oracles.ir_grammars import DIGIT, json_grammar
from tests.oracles.ir_oracle import language, matches
from tests.oracles.ir_strategies import ALPHABET, boolean_nodes, grammars
from tests.oracles.xgrammar_engine import LONGER, STOP, VOCABULARY, Engine

MAX_LEN = 4
A, B, C = Literal("a"), Literal("b"), Literal("c")


def starts(grammar: Grammar, name: str) -> set[str]:
    """The rules that a text of ``name`` may begin with; optional parts are looked past."""
    found: set[str] = set()
    pending: list[Node] = [grammar.rules[name]]
    while pending:
        match pending.pop():
            case Ref(other) if other not in found:
                found.add(other)
                pending.append(grammar.rules[other])
            case Seq(items):
                pending.append(items[0])
                if isinstance(items[0], Repeat) and items[0].minimum == 0 and len(items) > 1:
                    pending.append(Seq(items[1:]))
            case Alt(options):
                pending.extend(options)
            case Repeat(item):
                pending.append(item)
    return found


def has_left_recursion(grammar: Grammar) -> bool:
    return any(name in starts(grammar, name) for name in grammar.rules)


def open_loops(grammar: Grammar) -> list[Node]:
    """Unbounded loops over something with references."""
    return [
        part
        for body in grammar.rules.values()
        for part in walk(body)
        if isinstance(part, Repeat) and part.maximum is None and not is_regular(part)
    ]


def same_language(before: Grammar, after: Grammar, alphabet: str, max_len: int) -> bool:
    return language(before, alphabet, max_len) == language(after, alphabet, max_len)


# -- the language -----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(grammars(leaves=8))
def test_the_language_is_kept(grammar: Grammar) -> None:
    normal = normalize(grammar)
    assert same_language(grammar, normal, ALPHABET, MAX_LEN), normal
    assert set().union(*(references(body) for body in normal.rules.values())) <= set(normal.rules)


@settings(max_examples=80, deadline=None)
@given(grammars(leaves=8))
def test_the_engine_runs_the_result_exactly(grammar: Grammar) -> None:
    ebnf = emit(normalize(grammar))
    tested = Engine(ebnf)
    expected = language(grammar, ALPHABET, 3)
    texts = language(Grammar({"root": repeat(chars(ALPHABET))}), ALPHABET, 3)
    assert {text for text in texts if tested.accepts(text)} == expected, ebnf
    for text in texts:
        if len(text) < 2 and tested.reaches(text):
            legal = tested.legal(text)
            for token in range(256, STOP):
                assert (token in legal) == tested.reaches(text.encode() + VOCABULARY[token]), (ebnf, text, token)


@settings(max_examples=80, deadline=None)
@given(boolean_nodes())
def test_small_intersections_and_complements_are_worked_out(node: Node) -> None:
    grammar = Grammar({"root": Seq((Ref("r"), Alt((node, A)))), "r": Alt((B, Seq((C, Ref("r"), A))))})
    normal = normalize(grammar)
    letters = sum(len(text.encode()) for part in walk(node) if isinstance(part, Words) for text in part.texts)
    if letters <= 20:  # products of longer lists are large
        assert not any(isinstance(part, And | Not) for body in normal.rules.values() for part in walk(body))
    assert same_language(grammar, normal, "abc", 3)


def test_large_intersections_stay() -> None:
    letters = chars("ab")
    tail = seq(repeat(letters), A, Repeat(letters, 12, 12))
    both = And((tail, Not(Literal("a"))))
    assert any(isinstance(part, And) for part in walk(normalize(Grammar({"root": both})).start))


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_json_by_characters_has_regular_strings_and_no_open_loops() -> None:
    grammar = json_grammar()
    normal = normalize(grammar)
    assert open_loops(normal) == []
    assert "char" not in normal.rules
    assert is_regular(normal.rules["string"])
    assert is_regular(normal.rules["number"])
    assert sum(name == "string" for body in normal.rules.values() for name in references(body)) >= 3  # still shared
    ebnf = emit(normal)
    assert ebnf.count("Regex(") == 2
    tested = Engine(ebnf)
    for text in ('{"a": [1, -2.5, {"b\\"\\u00e9": null}], "é": "x"}', "{}", '{"a":{}}', "{ }\n"):
        assert tested.accepts(text)
        assert matches(grammar, text)
    for text in ('{"a"}', '{"a": 01}', "[]", '{"a": "\n"}', '{"\\x": 1}'):
        assert not tested.accepts(text)


def test_left_recursion_becomes_repetition() -> None:
    direct = Grammar({"root": alt(seq(Ref("root"), A), B)})
    assert normalize(direct).rules == {"root": seq(B, repeat(A))}
    listing = Grammar({"root": alt(Ref("item"), seq(Ref("root"), Literal(","), Ref("item"))), "item": repeat(DIGIT, 1)})
    assert normalize(listing).rules == {
        "root": seq(repeat(DIGIT, 1), repeat(seq(Literal(","), repeat(DIGIT, 1)))),
    }


def test_indirect_left_recursion_is_removed() -> None:
    grammar = Grammar(
        {
            "root": alt(seq(Ref("p"), A), B),
            "p": alt(seq(Ref("q"), B), A),
            "q": alt(seq(Ref("root"), C), seq(Ref("p"), Literal("("), Ref("root"), Literal(")"))),
        }
    )
    normal = normalize(grammar)
    assert has_left_recursion(grammar)
    assert not has_left_recursion(normal)
    assert same_language(grammar, normal, "abc()", 5)


def test_operators_lose_their_ambiguity() -> None:
    e = Ref("e")
    group = seq(Literal("("), e, Literal(")"))
    grammar = Grammar(
        {
            "root": e,
            "e": alt(seq(e, chars("+*"), e), seq(Literal("-"), e), seq(e, Literal("!")), group, Literal("1")),
        }
    )
    normal = normalize(grammar)
    assert not has_left_recursion(normal)
    assert same_language(grammar, normal, "1+-!(", 4)
    for text in ("-1!*(1+-1)!", "((1))+1", "1!!", "--1"):
        assert matches(normal, text)


def test_a_right_linear_group_is_one_expression() -> None:
    grammar = Grammar(
        {
            "root": alt(seq(A, Ref("p")), seq(B, Ref("root")), EPSILON),
            "p": alt(seq(A, Ref("root")), seq(B, Ref("p"))),
        }
    )
    normal = normalize(grammar)
    assert set(normal.rules) == {"root"}
    assert is_regular(normal.start)
    assert same_language(grammar, normal, "ab", 6)


def test_a_small_rule_in_a_recursive_loop_is_opened() -> None:
    plain = complement(chars("()"))
    nested = alt(plain, seq(Literal("("), Ref("text"), Literal(")")))
    grammar = Grammar({"root": Ref("text"), "text": repeat(Ref("part")), "part": nested})
    normal = normalize(grammar)
    assert "part" not in normal.rules
    assert open_loops(normal) == []
    assert any(plain in (option.items[0] for option in part.options if isinstance(option, Seq))
               for body in normal.rules.values() for part in walk(body) if isinstance(part, Alt))  # fmt: skip
    assert same_language(grammar, normal, "a()", 5)


def test_what_follows_a_loop_is_pulled_in() -> None:
    grammar = Grammar(
        {
            "root": seq(Literal("["), repeat(alt(seq(A, Ref("root")), seq(B, Ref("root"), C))), Literal("]")),
        }
    )
    normal = normalize(grammar)
    (tail,) = set(normal.rules) - {"root"}
    assert normal.start == Seq((Literal("["), Ref(tail)))
    body = normal.rules[tail]
    assert isinstance(body, Alt)
    assert Literal("]") in body.options
    assert same_language(grammar, normal, "ab[]", 6)


def test_counted_loops_over_recursive_parts() -> None:
    nested = alt(A, seq(Literal("("), Ref("root"), Literal(")")))
    grammar = Grammar({"root": seq(Repeat(nested, 2, 4), B)})
    normal = normalize(grammar)
    assert not any(isinstance(part, Repeat) for body in normal.rules.values() for part in walk(body))
    assert same_language(grammar, normal, "ab()", 6)


def test_loops_over_nothing_are_gone() -> None:
    x = alt(A, B)
    for node, plain in (
        (Repeat(Repeat(x, 0, None), 0, None), repeat(chars("ab"))),
        (Repeat(Repeat(x, 0, 1), 1, None), repeat(chars("ab"))),
        (Repeat(Seq((Repeat(A, 0, None), Repeat(B, 0, 1))), 0, None), repeat(chars("ab"))),
        (Repeat(Alt((EPSILON, A)), 2, 5), Repeat(A, 0, 5)),
        (Repeat(Repeat(A, 1, None), 2, 2), Repeat(A, 2, None)),
        (Repeat(Repeat(A, 2, 3), 2, 4), Repeat(A, 4, 12)),
        (Repeat(Repeat(A, 2, 2), 1, 2), Repeat(Literal("aa"), 1, 2)),
    ):
        grammar = Grammar({"root": node})
        assert normalize(grammar).start == plain
        assert same_language(grammar, Grammar({"root": plain}), "ab", 6)


def test_useless_and_equal_rules_are_gone() -> None:
    pair = seq(Literal("("), Ref("root"), Literal(")"))
    grammar = Grammar(
        {
            "root": alt(Ref("one"), seq(Ref("two"), A), Ref("never"), seq(B, Ref("empty")), Ref("alias")),
            "one": pair,
            "two": pair,
            "never": seq(A, Ref("never")),
            "empty": seq(EPSILON, EPSILON),
            "alias": Ref("one"),
            "unused": A,
        }
    )
    normal = normalize(grammar)
    assert len(normal.rules) == 2
    assert same_language(grammar, normal, "ab()", 6)


def test_the_empty_language_and_the_empty_string() -> None:
    assert normalize(Grammar({"root": seq(A, Ref("root"))})).rules == {"root": NEVER}
    assert normalize(Grammar({"root": And((A, B))})).rules == {"root": NEVER}
    assert normalize(Grammar({"start": Ref("x"), "x": repeat(Ref("y")), "y": Alt(())}, "start")).start == EPSILON


def test_characters_merge_into_classes() -> None:
    grammar = Grammar({"root": Repeat(Ref("c"), 0, 100), "c": alt(A, DIGIT, Literal("_"), Ref("d")), "d": chars("xy")})
    merged = charset([*DIGIT.ranges, *chars("a_xy").ranges])
    assert normalize(grammar).rules == {"root": Repeat(merged, 0, 100)}


def test_a_counted_rule_of_alternatives_is_one_automaton() -> None:
    char = alt(complement(charset([(0, 31), (34, 34), (92, 92)])), seq(Literal("\\"), Ref("escape")))
    rules = {"char": char, "escape": json_grammar().rules["escape"], "hex": DIGIT}
    normal = normalize(Grammar({"root": seq(Literal('"'), Repeat(Ref("char"), 0, 100), Literal('"')), **rules}))
    assert set(normal.rules) == {"root"}
    tested = Engine(emit(normal))
    assert tested.accepts('"' + "\\u0123" * 100 + '"')
    assert not tested.reaches('"' + "x" * 101)


def test_marks_and_tokens() -> None:
    thinking = alt(seq(TokenSet((256,)), Lexeme(A)), seq(TokenSet((256,), exclude=True), Ref("root")))
    normal = normalize(Grammar({"root": thinking}))
    assert not any(isinstance(part, Lexeme) for part in walk(normal.start))
    tested = Engine(emit(normal))
    assert tested.accepts_tokens([1, 2, 256, ord("a")])
    assert not tested.accepts_tokens([1, 256, 256, ord("a")])
    assert LONGER[0] == VOCABULARY[256]


# -- size and order ---------------------------------------------------------------------------------------------------


def test_large_and_deep_grammars_stay_small() -> None:
    count = 3 * sys.getrecursionlimit()
    deep: Node = Ref("root")
    for number in range(count):
        inside = Seq((Literal("["), Alt((deep, Literal(f"x{number}"))), Literal("]")))
        deep = Repeat(inside, 0, 1 if number % 2 else None)
    wide = alt(*(seq(Literal(f"k{number}"), Ref("root")) for number in range(count)))
    chain = {f"n{number}": seq(A, Ref(f"n{number + 1}"), Ref("root")) for number in range(count)}
    ring = {f"n{number}": alt(A, seq(Ref(f"n{(number + 1) % count}"), B)) for number in range(count)}
    for grammar in (
        Grammar({"root": Alt((A, deep))}),
        Grammar({"root": alt(A, wide)}),
        Grammar({"root": alt(A, Ref("n0")), **chain, f"n{count}": B}),
        Grammar({"root": Ref("n0"), **ring}),
    ):
        assert size(normalize(grammar)) <= 2 * size(grammar)


def test_the_result_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from infernix_plugin.grammar.emit import emit\n"
        "from infernix_plugin.grammar.normalize import normalize\n"
        "from infernix_plugin.grammar.ir import Grammar, Literal, Ref, alt, seq\n"
        "from tests.oracles.ir_grammars import json_grammar\n"
        "A, B, C = map(Literal, 'abc')\n"
        "extra = {f'x{i}': alt(A, seq(B, Ref(f'x{(7 * i + 3) % 40}'), C)) for i in range(40)}\n"
        "rules = {**json_grammar().rules, **extra}\n"
        "rules['root'] = alt(rules['root'], *map(Ref, extra))\n"
        "print(emit(normalize(Grammar(rules))))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
