"""No constraint ends the process, hangs it, takes its memory or is contradicted by its own masks.

The ceiling on time is many times the compile limit, as the machine may be busy; what it catches are hours, not seconds.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.corpus import FAMILIES

ROOT = Path(__file__).parents[2]
COMPILE_SECONDS = 0.5
CEILING_SECONDS = 30.0
MEMORY = 1 << 30
ALLOWED = {
    *("llguidance", "xgrammar", "xgrammar, then ConstraintTooLarge", "llguidance, then ConstraintTooLarge"),
    *("CompileTimeout", "ConstraintTooLarge", "UnsatisfiableConstraint", "UnsupportedSchema"),
    *("InvalidGrammar", "InvalidSchema", "InvalidRegex", "InvalidChoice"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_ends_as_an_answer(family: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.attempt", family, str(COMPILE_SECONDS), str(MEMORY)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CEILING_SECONDS * len(FAMILIES[family]),
        check=False,
    )
    answers = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(answers) == list(FAMILIES[family]), f"it ended with {done.returncode}: {done.stderr[-2000:]}"
    strange = {name: line["outcome"] for name, line in answers.items() if line["outcome"] not in ALLOWED}
    assert not strange
    late = {name: line["seconds"] for name, line in answers.items() if line["seconds"] > CEILING_SECONDS}
    assert not late
