"""Runs ``tests/interpreted`` in a process under Triton's interpreter: GPU code without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

TESTS = Path(__file__).resolve().parent.parent


def test_the_gpu_kernels_under_the_interpreter():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-v", "-rs", str(TESTS / "interpreted")]
    run = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    summary = run.stdout.splitlines()[-1]
    assert " passed" in summary
    assert "skipped" not in summary
