"""Outputs drawn at random through the masks of a schema satisfy it, says an independent validator.

With ``INFERNIX_MASKBENCH_DATA`` set to a folder of MaskBench schemas, those are tried as well, each with
``INFERNIX_OUTPUTS`` outputs (100 without it).
"""

import json
import os
import random
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for

from infernix_plugin.errors import ConstraintError
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import ConstraintCompiler
from tests.json_schema_suite.cases import Group, files, written
from tests.json_schema_suite.judge import verdicts
from tests.oracles.json_vocabulary import DOMAIN
from tests.oracles.mask_walks import drawn

STRICT = ConstraintCompiler(DOMAIN, options=GrammarOptions(max_whitespace=2))
LENIENT = ConstraintCompiler(DOMAIN, options=GrammarOptions(max_whitespace=2, unknown_keywords="ignore"))
OUTPUTS = 5
STEPS = 40
SUITE = [
    verdict.group
    for file in files()
    if "/optional/" not in file
    for verdict in verdicts(file)
    if verdict.refusal is None and verdict.satisfiable
]


BLANKS = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def _ecmascript(pattern: str) -> str:
    """The pattern for :mod:`re` with its ASCII flag, where only ``\\s`` still differs."""
    spelled, inside = [], False
    for token in re.findall(r"\\.|.", pattern, re.DOTALL):
        inside = token != "]" if inside else token == "["
        blanks = {r"\s": f"[{BLANKS}]", r"\S": f"[^{BLANKS}]"} if not inside else {r"\s": BLANKS}
        spelled.append(blanks.get(token, token))
    return "".join(spelled)


def _searched(validator, pattern, instance, schema):
    if validator.is_type(instance, "string") and not re.search(_ecmascript(pattern), instance, re.ASCII):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def validator_of(schema):
    base = validator_for(schema, default=Draft202012Validator)
    return extend(base, {"pattern": _searched})(schema)


def faults(compiler: ConstraintCompiler, source: str, schema: object, outputs: int) -> tuple[int, list[str]]:
    """How many outputs were drawn to their end, and those that are not valid."""
    compiled = compiler.compile(OutputConstraint.json_schema(source))
    rng, validator = random.Random(source), validator_of(schema)
    texts = [text.decode() for text in (drawn(compiled, rng, STEPS) for _ in range(outputs)) if text is not None]
    return len(texts), [text for text in texts if not validator.is_valid(json.loads(text))]


@pytest.mark.parametrize("group", SUITE, ids=lambda group: group.description)
def test_the_suite(group: Group):
    source = written(group.schema)
    drawn_to_the_end, invalid = faults(STRICT, source, json.loads(source), OUTPUTS)
    assert invalid == []
    assert drawn_to_the_end


DATA = os.environ.get("INFERNIX_MASKBENCH_DATA")


@pytest.mark.skipif(not DATA, reason="the MaskBench schemas are no part of the project: INFERNIX_MASKBENCH_DATA=DIR")
@pytest.mark.parametrize("path", sorted(Path(DATA or ".").glob("*.json")) if DATA else [], ids=lambda path: path.name)
def test_maskbench(path: Path):
    schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
    try:
        _, invalid = faults(LENIENT, json.dumps(schema), schema, int(os.environ.get("INFERNIX_OUTPUTS", "100")))
    except ConstraintError as error:
        pytest.skip(f"refused: {error.message}")
    assert invalid == []
