"""No compile goes on for long without a look at the clock, whatever the constraint is a long list of.

Judged by the calls of functions between two looks, which do not depend on the machine. A step without a look makes some
calls for each of the thousands of parts.
"""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import pytest

from infernix_plugin import ConstraintCompiler, ConstraintError, OutputConstraint
from infernix_plugin.grammar import budget
from tests.matching.support import DOMAIN

PARTS = 1500
MOST_CALLS = 80_000


def schema(document: Any) -> OutputConstraint:
    return OutputConstraint.json_schema(json.dumps(document))


def listed(part: str, between: str = " | ") -> str:
    return between.join(part.format(i=index, j=(7 * index + 1) % PARTS) for index in range(PARTS))


def rules(first: str, part: str) -> OutputConstraint:
    return OutputConstraint.grammar(f'root ::= "(" root ")" | {first}\n' + listed(f"r{{i}} ::= {part}", "\n"))


EACH = range(PARTS)
NAMES = {f"p{index}": {"type": "string"} for index in EACH}
LONG = {
    "choices": OutputConstraint.choice([f"v{index}" for index in EACH]),
    "listed strings": schema({"enum": [f"v{index}" for index in EACH]}),
    "listed numbers": schema({"enum": [*EACH]}),
    "listed arrays": schema({"enum": [[index, [str(index)]] for index in EACH]}),
    "listed objects": schema({"enum": [{"a": index} for index in EACH]}),
    "listed strings with a pattern": schema({"enum": [f"v{index}" for index in EACH], "pattern": "^v"}),
    "not listed strings": schema({"type": "string", "not": {"enum": [f"v{index}" for index in EACH]}}),
    "not listed numbers": schema({"type": "integer", "not": {"enum": [*EACH]}}),
    "a long array": schema({"const": [*EACH]}),
    "a long object": schema({"const": {f"k{index}": index for index in EACH}}),
    "anyOf constants": schema({"anyOf": [{"const": f"v{index}"} for index in EACH]}),
    "oneOf constants": schema({"oneOf": [{"const": f"v{index}"} for index in EACH]}),
    "oneOf equal constants": schema({"oneOf": [{"const": "v"} for _ in EACH]}),
    "allOf lists": schema({"allOf": [{"enum": [*range(10)]} for _ in EACH]}),
    "a closed object": schema({"type": "object", "properties": NAMES, "additionalProperties": False}),
    "an open object": schema({"type": "object", "properties": NAMES}),
    "required members": schema({"type": "object", "properties": NAMES, "required": [*NAMES]}),
    "required names": schema({"required": [*NAMES]}),
    "positions": schema({"prefixItems": [{"type": "integer"}] * PARTS}),
    "required positions": schema({"prefixItems": [{"const": index} for index in EACH], "minItems": PARTS}),
    "unused definitions": schema({"$defs": NAMES}),
    "a chain of references": schema(
        {
            "$ref": "#/$defs/0",
            "$defs": {str(index): {"$ref": f"#/$defs/{index + 1}"} for index in EACH} | {str(PARTS): {}},
        }
    ),
    "definitions": schema({"anyOf": [{"$ref": f"#/$defs/p{index}"} for index in EACH], "$defs": NAMES}),
    "anchors": schema({"$defs": {f"d{index}": {"$id": f"u{index}", "$dynamicAnchor": "a"} for index in EACH}}),
    "names from a list": schema({"propertyNames": {"enum": [*NAMES]}}),
    "dependencies": schema({"dependentRequired": {name: ["q"] for name in NAMES}}),
    "alternatives of an expression": OutputConstraint.regex(listed("a{i}", "|")),
    "classes of an expression": OutputConstraint.regex(listed("[a-z]+x", "")),
    "options of an expression": OutputConstraint.regex(listed("(a|b{i})?", "")),
    "a class": OutputConstraint.regex("[" + "".join(f"\\u{0x3000 + 2 * index:04x}" for index in EACH) + "]+"),
    "literals": OutputConstraint.grammar('root ::= "(" root ")" | ' + listed('"{i}"')),
    "regular literals": OutputConstraint.grammar("root ::= " + listed('"{i}"')),
    "sequences": OutputConstraint.grammar('root ::= "x" | ' + listed('"a{i}" root "b"')),
    "classes": OutputConstraint.grammar('root ::= "(" root ")" | ' + listed("[a-z]+ [0-9]*", " ")),
    "counts": OutputConstraint.grammar('root ::= "(" root ")" | ' + listed('[ab]{{2,50}} "c"', " ")),
    "a class of a rule": OutputConstraint.grammar(
        "root ::= [" + "".join(chr(0x3000 + 2 * index) for index in EACH) + "]"
    ),
    "a chain of rules": rules("r0", '"a" r{j} | "b"'),
    "rules": rules(listed("r{i}"), '"a{i}" [a-z]*'),
    "optional rules": rules(listed("r{i}?", " "), '"a" [a-z]'),
    "rules that derive nothing": rules('r0 | "x"', '"a" r{j}'),
    "token terminals": OutputConstraint.grammar('root ::= "(" root ")" | ' + listed("Token(1)")),
    "Lark": OutputConstraint.grammar('start: "(" start ")" | ' + listed('"{i}"')),
}


class _Calls:
    """Counts the calls of Python functions between looks at the clock."""

    def __init__(self) -> None:
        self.since = self.most = 0
        self.where = ""

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        if frame.f_code is budget.checkpoint.__code__:
            self.since = 0
            return
        self.since += 1
        if self.since > self.most:
            self.most, self.where = self.since, f"{frame.f_code.co_filename}:{frame.f_lineno}"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Loading an engine is done once and not charged to a compile."""
    ConstraintCompiler(DOMAIN).compile(OutputConstraint.grammar('root ::= "(" root ")" | "a"'))


@pytest.mark.parametrize("constraint", LONG.values(), ids=LONG)
def test_long_lists(constraint: OutputConstraint) -> None:
    compiler = ConstraintCompiler(DOMAIN, max_compile_seconds=60.0)
    calls = _Calls()
    sys.setprofile(calls.count)
    try:
        compiler.compile(constraint)
    except ConstraintError:
        pass
    finally:
        sys.setprofile(None)
    assert calls.most <= MOST_CALLS, calls.where
