"""The structural tags that vLLM's tool parsers build: each is enforced, and its calls are the right ones."""

from __future__ import annotations

import json
from itertools import product

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
from vllm.tool_parsers.structural_tag_registry import SUPPORTED_STRUCTURAL_TAG_MODELS, get_model_structural_tag

from infernix_plugin.matching import ConstraintCompiler, TokenDomain

END = 256
COMPILER = ConstraintCompiler(
    TokenDomain([*(bytes([byte]) for byte in range(256)), b"<end>"], control={"<end>": END}, stop=[END])
)
PLAIN = {"deepseek_r1", "deepseek_v3_1", "hermes", "kimi", "llama", "longcat", "qwen_3"}
"""Models whose arguments are JSON."""
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
FREE = {"type": "object", "properties": {"q": {"type": "string"}, "o": {"type": "array", "items": {"type": "number"}}}}


def built(model, choice, *, strict, schemas=(SCHEMA, FREE)):
    tools = [
        ChatCompletionToolsParam(
            type="function", function={"name": f"f{index}", "parameters": schema, "strict": strict}
        )
        for index, schema in enumerate(schemas)
    ]
    return get_model_structural_tag(model, tools, choice, False)


@pytest.mark.parametrize("model", sorted(SUPPORTED_STRUCTURAL_TAG_MODELS))
def test_every_tag_is_enforced(model):
    for choice, strict in product(("auto", "required"), (True, False)):
        tag = built(model, choice, strict=strict)
        if tag is None:
            continue
        compiled = COMPILER.compile_structural_tag(json.dumps(tag.model_dump()))
        assert compiled.engine == "llguidance" or model not in PLAIN


def accepts(compiled, text):
    return compiled.session().preview([*text.encode(), END]) == len(text) + 1


@pytest.mark.parametrize("space", ["", "\n"])
def test_calls_of_a_tag(space):
    schema = {**SCHEMA, "not": {"required": ["days", "unit"]}}
    compiled = COMPILER.compile_structural_tag(
        json.dumps(built("hermes", "auto", strict=True, schemas=[schema]).model_dump())
    )

    def call(arguments):
        return f'Well: <tool_call>{space}{{"name": "f0", "arguments": {arguments}}}{space}</tool_call> and so on.'

    assert accepts(compiled, call('{"city": "Rome", "days": 2}'))
    assert accepts(compiled, call('{"city":"R}"}') + call('{"city": "", "unit": "F"}'))
    assert not accepts(compiled, call('{"city": "Rome", "days": 0}'))
    assert not accepts(compiled, call('{"days": 2}'))
    assert not accepts(compiled, call('{"city": "Rome", "days": 2, "unit": "C"}'))
    assert not accepts(compiled, call('{"city": "Rome", "other": 2}'))
    assert not accepts(compiled, "Well: <tool_call>no call")
