"""What an output becomes: judged by its text, apart from the code that follows its tokens."""

from __future__ import annotations

import random

import pytest

from infernix_plugin.framing.branch import BranchObserver
from infernix_plugin.framing.phases import CONTENT, read_by_parser
from infernix_plugin.framing.tools.contract import CallChoice, ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.structured_output.constrained import ConstrainedRequest
from tests.framing.calling import (
    COMPILER,
    CONTROL,
    DOMAIN,
    STOP,
    THINKING,
    required,
    schema,
    session_of,
    tokens_of,
    walk,
)
from tests.framing.test_tool_grammar import PING, call

ANSWER = OutputConstraint.json_schema(schema({"ok": {"type": "boolean"}}, ["ok"]))


def branches(tokens, framing=CONTENT, *, calls=True, prefix=""):
    """The branch before the first token and behind each."""
    observer = BranchObserver(framing, DOMAIN, calls=calls, prefix=prefix)
    found = [observer.branch.value]
    for token in tokens:
        observer.observe([token])
        found.append(observer.branch.value)
    return found


def expected(written: list[int], thinking: bool) -> str:
    """Over the whole output at once: what stands behind the framing."""
    behind = [token for token in written if token != STOP]
    if thinking:
        if CONTROL["</think>"] not in behind:
            return "undecided"
        behind = behind[behind.index(CONTROL["</think>"]) + 1 :]
    if CONTROL["<tool_call>"] in behind:
        return "tools"
    return "content" if len(b"".join(map(DOMAIN.token_bytes, behind))) > 2 * thinking else "undecided"


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
@pytest.mark.parametrize("contract", [ToolContract((PING,)), required(PING)], ids=["auto", "required"])
def test_random_outputs(contract, thinking):
    framing = THINKING if thinking else CONTENT
    kinds = set()
    for seed in range(40):
        ids = walk(session_of(contract, ANSWER if seed % 2 else None, framing=framing), random.Random(seed), 150) or []
        for at, branch in enumerate(branches(ids, framing)):
            assert branch == expected(ids[:at], thinking)
            kinds.add(branch)
    assert kinds >= {"undecided", "tools"}
    assert contract.choice is CallChoice.REQUIRED or "content" in kinds


def test_the_phases_of_an_output():
    think = [*tokens_of("so "), CONTROL["<tool_call>"], CONTROL["</think>"]]
    assert set(branches(think, THINKING)) == {"undecided"}
    two = tokens_of("\n\n")
    assert branches([*think, *two], THINKING)[-1] == "undecided"
    assert branches([*think, *two, STOP], THINKING)[-1] == "undecided"
    assert branches([*think, ord("\n"), ord("\n"), ord("{")], THINKING)[-2:] == ["undecided", "content"]
    assert branches([*think, *two, CONTROL["<tool_call>"]], THINKING)[-1] == "tools"
    # A token that ends the separator and begins the content.
    assert branches([*think, ord("\n"), *tokens_of("\n</")], THINKING)[-1] == "content"
    # Where one of vLLM's parsers reads, nothing stands behind the closing token.
    assert branches([CONTROL["</think>"], ord("a")], read_by_parser(THINKING, DOMAIN))[-1] == "content"
    assert branches([*tokens_of("I look.\n"), *tokens_of(call("ping"))])[-1] == "tools"
    # Markers that this output cannot have mean nothing.
    assert branches([ord("a"), CONTROL["<tool_call>"]], calls=False)[-1] == "content"


def test_a_continued_prefix_takes_part():
    assert branches([], prefix="The answer") == ["content"]
    assert branches([CONTROL["<tool_call>"]], prefix="The answer") == ["content", "tools"]
    assert branches([], prefix="<tool_call>\n<function=pi") == ["tools"]
    assert branches([], prefix='{"a": "<tool_call>"', calls=False) == ["content"]


def test_the_record_says_it_of_committed_tokens_alone():
    prepared = COMPILER.prepare_tools(ToolContract((PING,)), ANSWER, framing=CONTENT)
    request = ConstrainedRequest(prepared, kind="json_schema", branch=BranchObserver(CONTENT, DOMAIN, calls=True))
    assert request.record()["branch"] == "undecided"
    assert not request.accept([ord("x")])
    assert request.record()["branch"] == "undecided"
    request = ConstrainedRequest(prepared, kind="json_schema", branch=BranchObserver(CONTENT, DOMAIN, calls=True))
    assert request.accept([CONTROL["<tool_call>"]])
    assert request.record()["branch"] == "tools"
    assert "branch" not in ConstrainedRequest(prepared, kind="structural_tag").record()
