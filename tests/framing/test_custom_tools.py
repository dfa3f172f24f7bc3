"""Custom tools with a grammar: the text of their calls is in its language, and read back to the letter."""

from __future__ import annotations

import json
import random
import re

import pytest

from infernix_plugin.errors import (
    ConflictingConstraints,
    ConstraintTooLarge,
    InvalidGrammar,
    InvalidRegex,
    UnsatisfiableConstraint,
)
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.framing.tools.custom import text_argument
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.structured_output import framed_output
from infernix_plugin.structured_output.framed_output import FramedOutput
from tests.framing.calling import STOP, form_of, is_allowed, read, required, session_of, tokens_of, walk
from tests.framing.test_tool_grammar import PING, call

INPUT = json.dumps({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})


def custom(text: OutputConstraint) -> Tool:
    return Tool("p", INPUT, strict=True, text=text)


def allowed(tool: Tool, value: str) -> bool:
    return is_allowed(session_of(required(tool, PING)), [*tokens_of(call("p", ("input", value))), STOP])


@pytest.mark.parametrize(
    ("text", "values", "others"),
    [
        (OutputConstraint.regex("a+"), ["a", "aaa"], ["", "b", "ab", "a\n"]),
        (
            OutputConstraint.grammar('start: "x" line+ /[0-9]/?\nline: "+" /[^\\n]*/ LF\nLF: "\\n"\n'),
            ["x+\n", "x+é\n+ 1\n", "x+a\n5", "x+</parameter>\n"],
            ["x", "x+a", "x+a\n55", "+\n"],
        ),
        # The only text that the grammar allows and that no call can write is left out.
        (OutputConstraint.regex("[\\s\\S]*"), ["", "\n\n", "\n</paramete", "<function=p>"], ["a\n</parameter>b"]),
    ],
    ids=["regex", "lark", "anything"],
)
def test_the_text_is_in_the_language(text, values, others):
    tool = custom(text)
    for value in values:
        assert allowed(tool, value)
        ids = [*tokens_of(call("p", ("input", value))), STOP]
        (one,) = read(form_of(required(tool, PING), enforced=True), ids).complete_calls
        assert json.loads(one.arguments) == {"input": value}
    for value in others:
        assert not allowed(tool, value)
    assert not is_allowed(session_of(required(tool)), tokens_of("<tool_call>\n<function=p>\n</function>"))
    assert is_allowed(session_of(ToolContract((tool,), CallChoice.AUTO)), [*tokens_of("no call"), STOP])


def test_walks_stay_in_the_language():
    tool = custom(OutputConstraint.grammar('start: word (", " word)*\nword: /[a-c]{1,3}/ | "<" word2 ">"\nword2: "é"+'))
    contract = required(tool, parallel=False)
    finished = 0
    for seed in range(20):
        ids = walk(session_of(contract), random.Random(seed), 200)
        if ids is not None:
            finished += 1
            (one,) = read(form_of(contract, enforced=True), ids).complete_calls
            assert re.fullmatch("([a-c]{1,3}|<é+>)(, ([a-c]{1,3}|<é+>))*", json.loads(one.arguments)["input"])
    assert finished > 5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (OutputConstraint.grammar('start: "(" start ")" | "x"'), InvalidGrammar),
        (OutputConstraint.grammar('start: a\na: "x" b?\nb: "y" a?'), InvalidGrammar),
        (OutputConstraint.grammar("start: missing"), InvalidGrammar),
        (OutputConstraint.regex("a("), InvalidRegex),
        (OutputConstraint.regex("[^]*\n</parameter>b?"), UnsatisfiableConstraint),
        (OutputConstraint.grammar('start: a* "\\n</parameter>"\na: "x" | "\\n</parameter>"'), UnsatisfiableConstraint),
    ],
)
def test_what_cannot_be_enforced_is_refused_at_its_format(text, kind):
    with pytest.raises(kind) as refused:
        session_of(required(PING, custom(text)))
    assert refused.value.location.startswith("tools[1].format")


def test_rules_that_double_are_not_written_out_without_end():
    rules = [f"a{level}: a{level + 1} a{level + 1}" for level in range(40)]
    text = OutputConstraint.grammar("\n".join(["start: a0", *rules, 'a40: "x"']))
    with pytest.raises(ConstraintTooLarge, match="max_nodes"):
        text_argument(text, GrammarOptions())


def test_the_contract_arrives_in_the_engine_core():
    asked = FramedOutput(required(PING, custom(OutputConstraint.regex("é+"))))
    assert framed_output.read(asked.text()) == asked


def test_a_definition_that_is_no_lark_grammar():
    from openai.types.responses import CustomTool

    from infernix_plugin.entrypoints.tools.request import _tools

    def declared(syntax, definition):
        form = {"type": "grammar", "syntax": syntax, "definition": definition}
        return CustomTool.model_validate({"type": "custom", "name": "p", "format": form})

    (tool,) = _tools([declared("lark", "start: /a/")])
    assert (tool.strict, tool.text) == (True, OutputConstraint.grammar("start: /a/"))
    (tool,) = _tools([declared("regex", "start: /a/")])
    assert tool.text == OutputConstraint.regex("start: /a/")
    with pytest.raises(ConflictingConstraints) as refused:
        _tools([declared("lark", 'root ::= "a"')])
    assert refused.value.location == "tools[0].format.definition"
