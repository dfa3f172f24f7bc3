"""The demo says that it goes on, where nobody sees a spinner too."""

import io

import pytest
from rich.console import Console

from infernix_plugin.entrypoints.demo import runner
from infernix_plugin.entrypoints.demo.process_group import ProcessGroup
from infernix_plugin.entrypoints.demo.progress import under_way
from infernix_plugin.entrypoints.demo.server import EngineError
from infernix_plugin.entrypoints.generate.waiting import EVERY


def test_a_file_gets_a_line_now_and_then():
    shown = io.StringIO()
    with under_way(Console(file=shown), "running [it]") as passed:
        for second in range(2 * EVERY + 1):
            passed(f"{second} s")
    assert shown.getvalue() == f"running [it]: {EVERY - 1} s\nrunning [it]: {2 * EVERY - 1} s\n"


def test_the_offline_batch_reports_until_its_end(tmp_path, monkeypatch):
    said = []
    group = ProcessGroup(["/bin/sh", "-c", "sleep 1.2; exit 3"], log=tmp_path / "log", environment={"PATH": "/bin"})
    assert runner._end_of(group, said.append) == 3
    assert said
    assert all(line.endswith(" s") for line in said)
    monkeypatch.setattr(runner, "OFFLINE_SECONDS", 0.1)
    endless = ProcessGroup(["/bin/sleep", "600"], log=tmp_path / "log", environment={})
    try:
        with pytest.raises(EngineError, match=r"took longer than 0\.1 s"):
            runner._end_of(endless, said.append)
    finally:
        endless.stop()
