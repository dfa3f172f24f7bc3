"""Framing: which phase a prompt leaves the output in, and what the framed grammar accepts token by token."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.framing.phases import CONTENT, TOOL_CALL, ControlIds, Framing, prompt_framing, read_by_parser
from infernix_plugin.grammar.analysis import undefined
from infernix_plugin.grammar.ir import Alt, CharSet, Grammar, Literal, Node, Ref, Repeat, Seq, TokenSet, chars, repeat

OPEN, CLOSE, START = 100, 101, 102
QWEN = ControlIds(OPEN, CLOSE, START)
VOCABULARY = {1: "a", 3: "\n", 4: "\n\n", 5: "\n\na", 6: "</think>", CLOSE: None, OPEN: None}


def accepts(grammar: Grammar, tokens: list[int]) -> bool:
    """Whether a token sequence is derived: text tokens by their characters or, like all, by their id.

    The sequence is flattened to marks "here token t may start" and characters, and matched by span sets.
    """
    tape: list[tuple[str, object]] = []
    for token in tokens:
        text = VOCABULARY[token]
        tape.append(("token", (token, len(text or ""))))
        tape.extend(("char", char) for char in text or "")

    def skip(at: int) -> int:
        """Characters may be read across the mark of a text token, never across that of a control token."""
        while at < len(tape) and tape[at][0] == "token" and tape[at][1][1]:
            at += 1
        return at

    def ends(node: Node, at: int, table: dict[tuple[str, int], set[int]]) -> set[int]:
        match node:
            case Literal(text):
                for char in text:
                    at = skip(at)
                    if at >= len(tape) or tape[at] != ("char", char):
                        return set()
                    at += 1
                return {at}
            case CharSet():
                at = skip(at)
                hit = at < len(tape) and tape[at][0] == "char" and ord(tape[at][1]) in node
                return {at + 1} if hit else set()
            case TokenSet(ids, exclude):
                if at >= len(tape) or tape[at][0] != "token" or (tape[at][1][0] in ids) == exclude:
                    return set()
                return {at + 1 + tape[at][1][1]}
            case Seq(items):
                here = {at}
                for item in items:
                    here = {end for start in here for end in ends(item, start, table)}
                return here
            case Alt(options):
                return {end for option in options for end in ends(option, at, table)}
            case Repeat(item, minimum, maximum):
                assert (minimum, maximum) == (0, None)
                found, fresh = {at}, {at}
                while fresh:
                    fresh = {end for start in fresh for end in ends(item, start, table)} - found
                    found |= fresh
                return found
            case Ref(name):
                return table.get((name, at), set())
        raise TypeError(node)

    table: dict[tuple[str, int], set[int]] = {}
    while True:
        new = {(name, at): ends(body, at, table) for name, body in grammar.rules.items() for at in range(len(tape) + 1)}
        if new == table:
            return len(tape) in table[grammar.root, 0]
        table = new


def content(*rules: str) -> Grammar:
    """``a*`` under the first of the given rule names, with the others beside it."""
    return Grammar({name: repeat(chars("a")) for name in rules}, rules[0])


def text_of(tokens: list[int]) -> str:
    return "".join(VOCABULARY[token] or "" for token in tokens)


def test_exactly_reasoning_close_separator_content() -> None:
    framed = Framing(thinking=True, close_id=CLOSE).apply(content("root"))
    for length in range(5):
        for tokens in map(list, itertools.product(VOCABULARY, repeat=length)):
            before, found, after = (
                (tokens[: tokens.index(CLOSE)], True, tokens[tokens.index(CLOSE) + 1 :])
                if CLOSE in tokens
                else (tokens, False, [])
            )
            plain = all(VOCABULARY[token] is not None for token in after)
            separator, body = text_of(after)[:2], text_of(after)[2:]
            expected = found and plain and separator == "\n\n" and set(body) <= {"a"}
            assert accepts(framed, tokens) == expected, (tokens, before)


@pytest.mark.parametrize("names", [("root",), ("think", "root"), ("root", "think", "think_"), ("think_", "think")])
def test_rule_names_never_clash(names: tuple[str, ...]) -> None:
    user = content(*names)
    framed = Framing(thinking=True, close_id=CLOSE).apply(user)
    assert framed.root not in user.rules
    assert not undefined(framed)
    assert {name: framed.rules[name] for name in names} == user.rules
    assert accepts(framed, [6, CLOSE, 5, 1])
    assert not accepts(framed, [CLOSE, 1])


def test_content_framing_changes_nothing() -> None:
    user = content("root")
    assert CONTENT.apply(user) is user


def test_framings_are_values() -> None:
    assert Framing() == CONTENT
    assert len({Framing(), CONTENT, Framing(True, CLOSE), Framing(thinking=True, close_id=CLOSE)}) == 2


@pytest.mark.parametrize("fields", [(True, None), (False, CLOSE)])
def test_a_framing_cannot_contradict_itself(fields: tuple[bool, int | None]) -> None:
    with pytest.raises(ValueError, match="closing token"):
        Framing(*fields)


THINKING = Framing(thinking=True, close_id=CLOSE)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([], CONTENT),
        ([1, 2], CONTENT),
        ([START, 1, OPEN, 3], THINKING),
        ([START, 1, OPEN, 4, CLOSE, 4], CONTENT),
        ([START, OPEN, CLOSE, START, 1], CONTENT),
        ([OPEN, 1, START, 2], CONTENT),
        ([START, CLOSE, OPEN], THINKING),
        ([OPEN], THINKING),
    ],
)
def test_the_last_marker_decides(prompt: list[int], expected: Framing) -> None:
    assert prompt_framing(prompt, QWEN) == expected
    assert prompt_framing(tuple(prompt), QWEN) == expected


@pytest.mark.parametrize("tokens", [ControlIds(), ControlIds(OPEN, None, START), ControlIds(None, CLOSE, START)])
def test_a_model_without_the_tokens_has_only_content(tokens: ControlIds) -> None:
    assert prompt_framing([START, OPEN, 1], tokens) == CONTENT


def test_a_model_without_message_markers_still_thinks() -> None:
    assert prompt_framing([OPEN, 1], ControlIds(OPEN, CLOSE)) == THINKING


@settings(deadline=None)
@given(st.lists(st.sampled_from([OPEN, CLOSE, START, 1, 2])))
def test_agrees_with_reading_forward(prompt: list[int]) -> None:
    thinking = False
    for token in prompt:
        thinking = {OPEN: True, CLOSE: False, START: False}.get(token, thinking)
    assert prompt_framing(prompt, QWEN).thinking == thinking


class WithTools:
    """Qwen's control tokens and one for tool calls."""

    def control_id(self, text: str) -> int | None:
        return 104 if text == TOOL_CALL else QWEN.control_id(text)


def test_a_reasoning_parser_gives_all_behind_the_closing_token_to_the_content() -> None:
    framing = read_by_parser(Framing(thinking=True, close_id=CLOSE), WithTools())
    grammar = framing.apply(Grammar({"root": Literal("a")}))
    assert accepts(grammar, [1, 3, CLOSE, 1])
    assert not accepts(grammar, [1, CLOSE, 4, 1])
    assert TokenSet((CLOSE, 104), exclude=True) in [
        part for option in grammar.start.options for part in option.items if isinstance(part, TokenSet)
    ]
    assert read_by_parser(CONTENT, WithTools()) == CONTENT
    without_tools = read_by_parser(Framing(thinking=True, close_id=CLOSE), QWEN)
    assert (without_tools.separator, without_tools.never) == ("", ())
