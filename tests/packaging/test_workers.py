"""Which worker of pytest-xdist runs what: in a small suite of its own, under the rules of this one."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
import sys

sys.path.insert(0, {root!r})
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler
import pytest


@pytest.fixture
def tiny_server():
    pass
"""
FILE = """
import pytest


@pytest.mark.parametrize("number", range(3))
{mark}
def test_it(number{fixture}):
    pass
"""
KINDS = {"server": ("", ", tiny_server"), "engine": ("@pytest.mark.engine", ""), "plain": ("", "")}


def test_engines_run_in_one_worker_and_files_stay_together(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = engine: one\n")
    for kind, (mark, fixture) in KINDS.items():
        for number in range(4):
            (tmp_path / f"test_{number}_{kind}.py").write_text(FILE.format(mark=mark, fixture=fixture))
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^\[(gw[01])\] .*PASSED (test_\d_\w+)\.py::test_it", done.stdout, re.MULTILINE)
    assert len(ran) == 3 * 4 * len(KINDS)
    workers = {file: {worker for worker, name in ran if name == file} for _, file in ran}
    assert all(len(one) == 1 for one in workers.values())
    orders = [list(dict.fromkeys(file for worker, file in ran if worker == name)) for name in ("gw0", "gw1")]
    names = {kind: [f"test_{number}_{kind}" for number in range(4)] for kind in KINDS}
    queue = names["server"] + names["engine"] + names["plain"][::-1]
    front = len(orders[0])
    assert front > 0
    assert orders == [queue[:front], queue[front:][::-1]]
