"""``infernix generate`` against a running server: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from infernix_plugin.entrypoints.cli import app

pytestmark = pytest.mark.server

TOOLS = [
    {
        "name": "add",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
]


@pytest.fixture
def generate(tiny_server):
    def run(*options, prompt="Say something.", stdin=None):
        return CliRunner().invoke(app, ["generate", tiny_server.url, prompt, "--seed", "1", *options], input=stdin)

    return run


def test_every_constraint(generate, tmp_path):
    grammar, schema = tmp_path / "g.gbnf", tmp_path / "s.json"
    grammar.write_text('root ::= "x"{2,3}\n')
    schema.write_text('{"const": {"a": 1}}')
    assert re.fullmatch("x{2,3}\n", generate("--grammar-file", str(grammar)).stdout)
    assert json.loads(generate("--json-schema-file", str(schema)).stdout) == {"a": 1}
    assert generate("--regex", "[ab]c").stdout in ("ac\n", "bc\n")
    assert generate("--choice", "yes", "--choice", "no", prompt="-", stdin="Well?").stdout in ("yes\n", "no\n")


def test_calls_are_lines_of_json(generate, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    for choice in ("required", "add"):
        result = generate("--tools-file", str(tools), "--tool-choice", choice)
        calls = [json.loads(line) for line in result.stdout.splitlines() if line]
        assert calls
        assert all(call["name"] == "add" and 0 <= call["arguments"]["a"] <= 9 for call in calls)
        assert result.exit_code == 0


def test_exit_codes(generate, tmp_path):
    assert generate("--choice", "a").exit_code == 0
    refused = generate("--regex", "a(")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "offset 1" in refused.stderr
    assert generate("--regex", "a", "--choice", "b").exit_code == 2
    assert generate("--tool-choice", "auto").exit_code == 2
    assert generate("--grammar-file", str(tmp_path / "none")).exit_code == 2
    cut = generate("--regex", "a{50}b", "--max-tokens", "3")
    assert cut.exit_code == 3
    assert "cut" in cut.stderr
