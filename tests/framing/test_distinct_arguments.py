"""A call of a function with free argument names gives each name once, whatever the tokens."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

from infernix_plugin.framing.tools.contract import Tool, ToolContract
from infernix_plugin.matching import ConstraintCompiler, MaskState, TokenDomain
from tests.framing.calling import (
    CONTROL,
    DOMAIN,
    MARKERS,
    PIECES,
    STOP,
    THINKING,
    form_of,
    is_allowed,
    read,
    required,
    session_of,
    tokens_of,
    walk,
)
from tests.framing.test_tool_grammar import FREE, PING, WEATHER, call

ONE, TWO = ("a", "1"), ("b", "x\n")


@pytest.mark.parametrize("seed", [None, *range(5)])
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ([ONE, TWO], True),
        ([ONE, ONE], False),
        ([ONE, TWO, ("a", "")], False),
        ([ONE, ("aa", ""), ("", "")], False),
        ([ONE, ("aa", ""), ("a ", "")], True),
        ([("city", "\n<parameter=city>\n"), ("lookup", ""), ("cit", "")], True),
        ([("city", ""), ("lookup", ""), ("city", "")], False),
    ],
)
def test_a_name_comes_once(arguments, allowed, seed):
    rng = None if seed is None else random.Random(seed)
    ids = [*tokens_of(call("look", *arguments), rng), STOP]
    assert is_allowed(session_of(required(FREE, PING, WEATHER)), ids) is allowed


def test_every_call_starts_anew_and_strict_calls_do_not_count():
    calls = [call("look", ONE), call("look", ONE), call("lookup", ("city", ""), ("days", "1")), call("look", ONE)]
    assert is_allowed(session_of(required(FREE, WEATHER)), [*tokens_of("\n".join(calls)), STOP])


def test_calls_in_the_reasoning_are_reasoning():
    reasoning = "<tool_call>\n<function=look>\n" + "<parameter=a>\n1\n</parameter>\n" * 2
    ids = [*tokens_of(reasoning), CONTROL["</think>"], *tokens_of("\n\n" + call("look", ONE)), STOP]
    assert is_allowed(session_of(required(FREE), None, THINKING), ids)


def test_a_lookahead_and_a_preview_leave_no_trace():
    session = session_of(required(FREE))
    assert is_allowed(session, tokens_of("<tool_call>\n<function=look>\n<parameter=a>\n1"))
    rows = np.zeros((40, DOMAIN.mask_words), dtype=np.int32)
    again = list(b"\n</parameter>\n<parameter=a>")
    states = session.lookahead(again, rows)
    assert states[len(again) - 1] is MaskState.READY
    assert states[len(again)] is MaskState.UNREACHABLE
    assert session.preview(again) == len(again) - 1
    session.discard()
    fresh = list(b"\n</parameter>\n<parameter=b>")
    assert session.preview(fresh) == len(fresh)
    session.commit()


def test_tokens_that_hold_several_lines_are_judged_whole():
    crossing = [
        b"\n</parameter>\n<parameter=a>\n",
        b"x\n</parameter>\n<parameter=a>",
        b"\n</parameter>\n<parameter=b>\n2\n</parameter>\n<parameter=b>\n",
    ]
    pieces = [*PIECES, *crossing]
    control = {marker: PIECES.index(marker.encode()) for marker in MARKERS}
    domain = TokenDomain(pieces, control=control, stop=[STOP])
    session = ConstraintCompiler(domain).prepare_tools(required(FREE)).compiled.session()
    for token in tokens_of("<tool_call>\n<function=look>\n<parameter=a>\n1"):
        assert session.accept(token)
    row = np.zeros(domain.mask_words, dtype=np.int32)
    assert session.fill_mask(row) is MaskState.READY
    allowed = [bool(int(row[token >> 5]) >> (token & 31) & 1) for token in range(len(PIECES), len(pieces))]
    assert allowed == [False, False, False]
    assert not any(session.accept(token) for token in range(len(PIECES), len(pieces)))


@pytest.mark.parametrize("seed", range(12))
def test_walks_never_repeat_a_name(seed):
    rng = random.Random(seed)
    contract = ToolContract((Tool("f", json.dumps({})),), required(FREE).choice)
    ids = walk(session_of(contract), rng, most=250)
    if ids is None:
        return
    output = read(form_of(contract, enforced=True), ids)
    for one in output.calls:
        names = json.loads(one.arguments, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
        assert not isinstance(names, list) or len(names) == len(set(map(str, names)))
    assert re.search("<function=f>", bytes(b"".join(map(DOMAIN.token_bytes, ids))).decode(errors="replace"))
