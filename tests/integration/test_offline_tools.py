"""Tools in offline scripts, without an engine: random outputs that the compiled constraint lets through, read back."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "New\nYork"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": PARAMETERS, "strict": True}},
    {"type": "function", "function": {"name": "ping"}},
]
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER}}


@pytest.fixture(scope="module")
def llm(tiny_model):
    """What a script's ``LLM`` has that is looked at here."""
    from transformers import AutoTokenizer
    from vllm.config import ModelConfig

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    return SimpleNamespace(model_config=ModelConfig(str(tiny_model)), get_tokenizer=lambda: tokenizer)


def answer(llm, params, seed, *, thinking):
    """A random output of the constraint, as the engine would return it."""
    from infernix_plugin import MaskState, settings
    from infernix_plugin.structured_output.compilers import compiler_for
    from infernix_plugin.structured_output.translation import asked_of

    tokenizer = llm.get_tokenizer()
    question = [{"role": "user", "content": "q"}]
    text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    compiler = compiler_for(llm.model_config, tokenizer, settings.current())
    asked = asked_of(params)
    session = compiler.session(asked, compiler.prepare(asked, prompt))
    row = np.zeros(compiler.domain.mask_words, dtype=np.int32)
    rng, ids = random.Random(seed), []
    if thinking:
        ids = [*tokenizer("so", add_special_tokens=False)["input_ids"], compiler.domain.control_id("</think>")]
        assert all(map(session.accept, ids))
    while not session.terminated:
        assert session.fill_mask(row) is MaskState.READY
        legal = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        ids.append(rng.choice([token for token in legal if compiler.domain.is_stop(token)] or legal))
        assert session.accept(ids[-1])
    return SimpleNamespace(prompt_token_ids=prompt, outputs=[SimpleNamespace(token_ids=ids)])


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
def test_calls_or_an_answer_come_back_as_they_were_constrained(llm, thinking):
    from infernix_plugin.entrypoints.offline_tools import OfflineTools

    kinds = set()
    for fields in ({"tool_choice": "required", "parallel_tool_calls": False}, {"response_format": FORM}):
        tools = OfflineTools(llm, TOOLS[:1], **fields)
        for seed in range(12):
            read = tools.read(answer(llm, tools.structured_outputs, seed, thinking=thinking))
            assert read.reasoning == ("so" if thinking else "")
            assert bool(read.calls) != bool(read.content)
            for call in read.complete_calls:
                jsonschema.validate(json.loads(call.arguments), PARAMETERS)
            if read.content:
                jsonschema.validate(json.loads(read.content), ANSWER)
            kinds.add(bool(read.calls))
    assert kinds == {True, False}


def test_strict_is_not_shown_and_contradictions_are_refused(llm):
    from vllm.exceptions import VLLMValidationError

    from infernix_plugin.entrypoints.offline_tools import OfflineTools

    assert [tool["function"].get("strict") for tool in OfflineTools(llm, TOOLS).tools] == [None, None]
    with pytest.raises(VLLMValidationError):
        OfflineTools(llm, [TOOLS[1], TOOLS[1]])
