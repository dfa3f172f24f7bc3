"""The whole demo on the tiny model: real engines, real client."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INFERNIX = Path(sys.executable).with_name("infernix")


def processes_that_mention(text):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in command:
            found.append(command)
    return found


@pytest.mark.server
def test_the_tiny_demo_is_right_and_leaves_nothing_running(tmp_path):
    done = subprocess.run(
        [INFERNIX, "demo", "--tiny"],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything was right." in done.stdout
    for shown in (
        "json_schema",
        "json_object",
        "choice",
        "regex",
        "grammar",
        "tools",
        "get_weather: {",
        "HTTP 400",
        "offline",
        "stream",
    ):
        assert shown in done.stdout
    assert processes_that_mention(str(tmp_path)) == []
