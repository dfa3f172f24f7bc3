"""The Lark text of terminals: repetitions, at their bounds."""

import pytest

from infernix_plugin.grammar.emit_lark import terminal
from infernix_plugin.grammar.ir import And, Literal, Not, Repeat, Seq, chars, repeat


@pytest.mark.parametrize("item", [Literal("ab"), chars("ab"), And((Literal("a"), Not(Literal("b"))))])
def test_nothing_repeated_is_the_empty_text(item):
    nothing = terminal(Literal(""))
    assert terminal(Repeat(item, 0, 0)) == nothing
    assert terminal(Seq((Repeat(item, 0, 0), Repeat(Literal("c"), 0, 0)))).replace("()", "") in (nothing, "/(?:)(?:)/")
    assert terminal(repeat(chars("a"), 1, 3)) == "/[a]{1,3}/"
