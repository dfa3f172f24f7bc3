"""A small program in place of the ``vllm`` command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infernix_plugin.entrypoints.demo import server


def install(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``program``, whose first line says ``{python}``, the ``vllm`` command until the test ends."""
    command = folder / "vllm"
    command.write_text(program.format(python=sys.executable))
    command.chmod(0o755)
    monkeypatch.setattr(server, "vllm_command", lambda: str(command))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there: the way to ourselves must not lead over it
