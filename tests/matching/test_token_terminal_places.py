"""A token terminal that content cannot hold is refused with the place where the grammar names it."""

import pytest

from infernix_plugin import ConstraintCompiler, InvalidGrammar, OutputConstraint
from tests.matching.support import CONTROL, DOMAIN


@pytest.mark.parametrize(
    ("token", "said"), [(DOMAIN.vocab_size, "outside the vocabulary"), (CONTROL["<x>"], "control")]
)
def test_the_place_of_a_refused_token(token: int, said: str) -> None:
    text = f'root ::= "a" rest\nrest ::= "b" <[{token}]> | <[{token}]>'
    with pytest.raises(InvalidGrammar, match=said) as refused:
        ConstraintCompiler(DOMAIN).compile(OutputConstraint.grammar(text))
    line, column = map(int, (refused.value.location or "").split(":"))
    assert line == 2
    assert str(token) in text.splitlines()[1][column - 1 :].partition("|")[0]
