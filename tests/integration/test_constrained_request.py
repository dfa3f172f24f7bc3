"""A request's constraint at run time, over a small vocabulary of our own."""

import numpy as np
import pytest

from infernix_plugin.errors import ConstraintDeadEnd, InfernixError
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler, MaskState, TokenDomain
from infernix_plugin.matching.domain import bitset
from infernix_plugin.structured_output.constrained import ConstrainedRequest

PIECES = [b"a", b"b", b"ab", b"c", b"", b""]
A, B, AB, C, END, OTHER_END = range(6)


@pytest.fixture(scope="module")
def compiler():
    return ConstraintCompiler(TokenDomain(PIECES, control={"<end>": END, "<other>": OTHER_END}, stop=[END, OTHER_END]))


@pytest.fixture
def request_for(compiler):
    def make(constraint, **options):
        return ConstrainedRequest(compiler.prepare(constraint), kind=constraint.kind.value, **options)

    return make


def allowed(row):
    return {token for token in range(len(PIECES)) if int(row[token >> 5]) >> (token & 31) & 1}


def fill(request, drafts):
    rows = np.full((len(drafts) + 1, 1), 12345, dtype=np.int32)
    states = request.fill(drafts, rows)
    return states, [allowed(row) for row in rows]


def test_rows_follow_the_drafts_and_leave_no_trace(request_for):
    request = request_for(OutputConstraint.choice(["ab", "abab"]))
    states, rows = fill(request, [A, B, END])
    assert rows[0] == {A, AB}
    assert rows[1] == {B}
    assert rows[2] == {A, AB, END, OTHER_END}
    assert states == [MaskState.READY] * 3 + [MaskState.UNREACHABLE]
    assert fill(request, []) == ([MaskState.READY], [{A, AB}])
    assert request.record()["mask_positions"] == 4


def test_an_illegal_draft_is_masked_and_counted(request_for):
    request = request_for(OutputConstraint.choice(["ab"]))
    states, rows = fill(request, [A, C, B])
    assert rows[1] == {B}
    assert states == [MaskState.READY, MaskState.READY, MaskState.UNREACHABLE, MaskState.UNREACHABLE]
    assert request.record()["illegal_drafts"] == 1


def test_unknown_drafts_have_a_true_row_before_them_and_open_rows_behind(request_for):
    request = request_for(OutputConstraint.choice(["ab"]))
    states, rows = fill(request, [A, -1, -1])
    assert rows[:2] == [{A, AB}, {B}]
    assert rows[2:] == [set(range(6))] * 2
    assert len(states) == 2


def test_commit_is_all_or_nothing(request_for):
    request = request_for(OutputConstraint.choice(["abc"]))
    assert not request.accept([A, B, A])
    assert isinstance(request.failure, InfernixError)
    assert "position 2" in str(request.failure)
    request = request_for(OutputConstraint.choice(["abc"]))
    assert request.accept([A, B])
    assert fill(request, [])[1] == [{C}]
    assert request.accept([C, END])
    assert request.record()["terminated"]


def test_a_reached_dead_end_fails_with_the_reason(request_for):
    request = request_for(OutputConstraint.regex("a(b|\\d)x"))  # no token writes x, and none writes a digit
    states, rows = fill(request, [A, B])
    assert states[-1] is MaskState.DEAD_END
    assert rows[-1], "a row of nothing would make NaN of the logits"
    assert request.accept([A])
    assert not request.accept([B, C])
    assert isinstance(request.failure, ConstraintDeadEnd)
    assert request.failure.message.startswith("After 2 output tokens")
    assert request.record()["error"]["type"] == "ConstraintDeadEnd"
    assert not request.accept([A])


def test_an_unreached_dead_end_harms_nobody(request_for):
    request = request_for(OutputConstraint.regex("(abx|ac)"))
    states, _ = fill(request, [AB, C])
    assert MaskState.DEAD_END in states
    assert request.accept([A])
    assert request.accept([C, END])
    assert request.failure is None


def test_stop_tokens_that_do_not_stop_this_request_are_withheld(request_for):
    kept = np.invert(bitset([OTHER_END], len(PIECES)))
    request = request_for(OutputConstraint.choice(["a", "ab"]), allowed=kept)
    _, rows = fill(request, [A])
    assert rows[1] == {B, END}
    nothing = np.invert(bitset([END, OTHER_END], len(PIECES)))
    request = request_for(OutputConstraint.choice(["a"]), allowed=nothing)
    states, rows = fill(request, [A])
    assert states[1] is MaskState.DEAD_END
    assert rows[1]
    assert not request.accept([A, C])
    assert isinstance(request.failure, ConstraintDeadEnd)
