"""The example programs run and print what they promise."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments, **variables):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=os.environ | variables,
    ).stdout


def test_masks(tiny_model):
    shown = run("masks.py", str(tiny_model))
    date = re.search(r"smallest legal tokens: '(.*)'", shown).group(1)
    assert re.fullmatch("(19|20)[0-9]{2}-[01][0-9]", date)
    states = re.search(r"rows: \[(.*)\]", shown).group(1)
    # "19x7" in characters or larger pieces: the row after the last legal token is there, the rest cannot be reached.
    assert "'READY'" in states
    assert states.endswith("'UNREACHABLE'")


@pytest.mark.parametrize(
    "program", ["examples/masks.py", "benchmarks/json_gbnf.py", "benchmarks/lookahead.py", "benchmarks/memory.py"]
)
def test_a_folder_without_a_tokenizer_is_said_in_a_line(tmp_path, program):
    command = [sys.executable, str(EXAMPLES.parent / program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"COLUMNS": "300"})
    assert done.returncode != 0
    assert "tokenizer.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.server
def test_openai_client(tiny_server):
    lines = dict(line.split(": ", 1) for line in run("openai_client.py", f"{tiny_server.url}/v1").splitlines())
    assert lines["choice"] in ("'good' (stop)", "'bad' (stop)")
    assert re.fullmatch(r"'[0-9]{4}-[0-9]{2}-[0-9]{2}' \(stop\)", lines["regex"])
    assert re.fullmatch("turn (on|off) the (lamp|heater|radio)", lines["grammar, streamed"])
    text, finish = re.fullmatch(r"(.*) \((\w+)\)", lines["json_schema"]).groups()
    assert finish == "length" or set(json.loads(ast.literal_eval(text))) == {"name", "age"}
    assert lines["refused"].startswith("HTTP 400, offset 0")


@pytest.mark.engine
def test_offline(tiny_model):
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    answers = dict(re.findall(r"^'(.*)' -> (.*)$", run("offline.py", str(tiny_model), **variables), re.MULTILINE))
    assert answers["Is the sky blue? "] in ("'yes'", "'no'")
    assert re.fullmatch("'(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]'", answers["A date: "])
    assert len(answers) == 4
