"""The adapter that outside harnesses drive."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from infernix_plugin.testing.maskbench import factory

VOCAB_SIZE = 2112
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def walk(matcher, tokens):
    """How many tokens pass the masks, and whether the text may end there."""
    row = np.zeros((VOCAB_SIZE + 31) // 32, dtype=np.int32)
    for index, token in enumerate(tokens):
        matcher.fill(row)
        allowed = bool(row[token // 32] >> (token % 32) & 1)
        assert matcher.accept(token) is allowed
        if not allowed:
            return index, False
    return len(tokens), matcher.can_end()


def test_instances_pass_or_stop_at_their_fault(tiny_model):
    engine = factory(str(tiny_model), vocab_size=VOCAB_SIZE)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    compiled = engine.compile_json_schema(json.dumps(SCHEMA))
    valid = tokenizer.encode('{"a": 1, "b": "x"}', add_special_tokens=False)
    assert walk(engine.matcher(compiled), valid) == (len(valid), True)
    assert walk(engine.matcher(compiled), valid[:-1]) == (len(valid) - 1, False)
    invalid = tokenizer.encode('{"a": "x"}', add_special_tokens=False)
    passed, _ = walk(engine.matcher(compiled), invalid)
    assert passed < len(invalid)


def test_a_refusal_is_a_value_error(tiny_model):
    engine = factory(str(tiny_model), vocab_size=VOCAB_SIZE)
    with pytest.raises(ValueError, match="foo"):
        engine.compile_json_schema('{"type": "string", "foo": 1}')
    lenient = factory(str(tiny_model), vocab_size=VOCAB_SIZE, unknown_keywords="ignore")
    lenient.compile_json_schema('{"type": "string", "foo": 1}')
