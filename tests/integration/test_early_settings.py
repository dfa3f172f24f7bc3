"""A wrong setting of ``vllm serve`` ends it before most of vLLM is imported, with the text of the later refusal."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from infernix_plugin import settings
from infernix_plugin.entrypoints import early_settings, serve
from infernix_plugin.entrypoints.demo import server
from infernix_plugin.errors import SettingsError

ROOT = Path(__file__).parents[2]
WRONG = '{"infernix": {"cache_byte": 1}}'
LINE = "additional_config[\"infernix\"] has no setting 'cache_byte'; did you mean cache_bytes?"
MAIN = "/lib/vllm/entrypoints/cli/main.py"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith(settings.VARIABLE_PREFIX)]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "options",
    [
        ["m", "--additional-config", WRONG],
        ["--additional_config=" + WRONG, "m"],
        ["m", "--additional-config", "{}", "--port", "1", "--additional-config", WRONG],
    ],
)
def test_what_the_command_line_states_is_judged(options):
    with pytest.raises(SettingsError) as refused:
        early_settings.judge(options)
    assert str(refused.value) == LINE


@pytest.mark.parametrize(
    "options",
    [
        ["m", "--additional-config", '{"infernix": {"cache_bytes": 1}}'],
        ["m", "--additional-config", WRONG, "--additional-config", "{}"],
        ["m", "--", "--additional-config", WRONG],
        ["m", "--served-model-name=--additional-config", WRONG],
        ["m", "--additional-config", WRONG, "--config", "settings.yaml"],
        ["m", "--additional-config", WRONG, "--additional-config.infernix.cache_bytes", "1"],
        ["m", "--additional-config", WRONG, "--additional-conf", "{}"],
        ["m", "--additional-config", WRONG, "--help"],
        ["m", "--additional-config", "{"],
        ["m", "--additional-config", "[" * 100_000],
        ["m", "--additional-config"],
        ["m", "--additional-config", "3"],
    ],
    ids=str,
)
def test_what_is_right_or_for_vllm_alone_to_read_passes(options):
    early_settings.judge(options)


def test_variables_count_where_the_command_line_does_not(monkeypatch):
    monkeypatch.setenv("INFERNIX_MAX_NESTING", "deep")
    with pytest.raises(SettingsError, match=r"^INFERNIX_MAX_NESTING = 'deep'"):
        early_settings.judge(["m"])
    early_settings.judge(["m", "--additional-config", '{"infernix": {"max_nesting": 3}}'])
    early_settings.judge(["m", "--config", "settings.yaml"])


@pytest.mark.parametrize("program", ["/venv/bin/vllm", MAIN])
@pytest.mark.parametrize("command", ["serve", "run-batch"])
def test_the_commands_that_configure_an_engine_end(monkeypatch, program, command):
    monkeypatch.setattr(sys, "argv", [program, command, "m", "--additional-config", WRONG])
    with pytest.raises(SystemExit) as ended:
        early_settings.refuse()
    assert ended.value.code == f"infernix-plugin: {LINE}"
    assert not isinstance(ended.value, Exception), "vLLM goes on after what is one"


@pytest.mark.parametrize(
    "arguments",
    [
        ["vllm"],
        ["vllm", "chat"],
        ["vllm", "bench", "serve"],
        ["app.py", "serve"],
        ["/vllm/main.py", "serve"],
        ["-c"],
        [""],
    ],
    ids=str,
)
def test_other_programs_go_on(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", [*arguments, "--additional-config", WRONG])
    early_settings.refuse()


def test_a_plugin_that_is_off_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "m", "--additional-config", WRONG])
    monkeypatch.setenv("INFERNIX_DISABLE", "1")
    early_settings.refuse()


def test_infernix_serve_does_not_become_vllm(monkeypatch, tmp_path):
    monkeypatch.setattr("infernix_plugin.entrypoints.demo.server.vllm_command", lambda: "vllm")
    monkeypatch.setattr(serve.os, "execv", lambda *arguments: pytest.fail("became vllm"))
    with pytest.raises(SettingsError, match="cache_byte'; did you mean"):
        serve.run(str(tmp_path / "no-such-model"), ["--additional-config", WRONG])


def test_a_server_of_the_demo_does_not_start(monkeypatch, tmp_path):
    monkeypatch.setenv("INFERNIX_MAX_NESTING", "deep")
    monkeypatch.setattr(server, "ServerProcess", lambda *arguments, **named: pytest.fail("started"))
    with pytest.raises(SettingsError, match="INFERNIX_MAX_NESTING"), server.serve(["m"], log=tmp_path / "log"):
        pytest.fail("went on")


def test_vllm_serve_says_that_line_and_nothing_else(tmp_path):
    """Where the engine's arguments are judged, its banner and those arguments are in the log."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = tmp_path / "early_settings-1.dist-info"  # whatever entry points the environment was made with
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: early-settings\nVersion: 1\n")
    point = points["vllm.platform_plugins"]["infernix_settings"]
    (installed / "entry_points.txt").write_text(f"[vllm.platform_plugins]\ninfernix_settings = {point}\n")
    main = "import sys; sys.argv[0] = 'vllm'; from vllm.entrypoints.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", main, "serve", "no-such-model", "--additional-config", WRONG],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"infernix-plugin: {LINE}"
    assert "Traceback" not in done.stderr
    assert done.stdout == "", "what vLLM logs"
