"""A model without Qwen's tokens: content constraints hold, and vLLM's own parser reads its tool calls."""

from __future__ import annotations

import json

import openai
import pytest

from tests.oracles.llama_model import make_tiny_llama
from tests.serving import served

pytestmark = pytest.mark.server

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA, "strict": True}} for name in ("f", "g")]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """One answer of Chat: its message and its finish reason."""
    model = tmp_path_factory.mktemp("models") / "llama"
    make_tiny_llama(model)
    arguments = [
        str(model),
        "--served-model-name=tiny",
        "--max-model-len=1024",
        "--max-num-seqs=4",
        "--enforce-eager",
        "--enable-auto-tool-choice",
        "--tool-call-parser=llama3_json",
        "--additional-config",
        '{"infernix": {"max_whitespace": 0}}',
    ]
    with served(arguments, tmp_path_factory.mktemp("llama") / "server.log") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=600)

        def answer(written=None, **fields):
            messages = [{"role": "user", "content": "q"}]
            messages += [{"role": "assistant", "content": written}] if written else []
            choice = client.chat.completions.create(
                model="tiny", messages=messages, seed=1, max_tokens=100, **fields
            ).choices[0]
            return choice.message, choice.finish_reason

        yield answer


def test_content_is_constrained_from_the_first_token(ask):
    message, finish = ask(response_format=FORM)
    assert (finish, message.reasoning) == ("stop", None)
    assert json.loads(message.content) in ({"a": True}, {"a": False})
    message, finish = ask(extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert (message.content in ("yes", "no"), finish) == (True, "stop")


def test_a_named_tool_goes_through_vllms_own_grammar_and_parser(ask):
    message, finish = ask(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "g"}})
    (called,) = message.tool_calls
    assert called.function.name == "g"
    assert json.loads(called.function.arguments) in ({"a": True}, {"a": False})
    assert finish == "stop"


def test_a_continued_message_counts_here_too(ask):
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    message, finish = ask('{"a":', response_format=FORM, extra_body=continued)
    assert finish == "stop"
    assert json.loads('{"a":' + message.content) in ({"a": True}, {"a": False})
    with pytest.raises(openai.BadRequestError) as refused:
        ask('{"b', response_format=FORM, extra_body=continued)
    assert refused.value.param == "offset 2"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extra_body": {"thinking_token_budget": 3}}, "thinking_token_budget"),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": TOOLS[:1]}},
            },
            "allowed_tools",
        ),
    ],
    ids=["budget", "allowed tools"],
)
def test_what_needs_qwens_tokens_is_refused(ask, fields, words):
    with pytest.raises(openai.BadRequestError, match=words):
        ask(**fields)
