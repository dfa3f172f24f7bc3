"""The set-up script on machines where something is missing: one clear line, exit code 1."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "dirname", "uname", "rm", "cat", "grep", "tail", "realpath", "env")


@pytest.fixture
def clone(tmp_path):
    """A repository without a .venv, and a PATH with the shell's tools and no Python."""
    repository = tmp_path / "a clone"
    shutil.copytree(ROOT / "scripts", repository / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", repository)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return repository


def add_python(clone, name, script):
    path = clone.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def setup(clone, **variables):
    environment = {"PATH": str(clone.parent / "bin"), "HOME": os.environ.get("HOME", "/"), **variables}
    command = [shutil.which("bash"), str(clone / "scripts" / "setup")]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )


def assert_one_line(done, *words):
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup: error: ")
    for word in words:
        assert word in line


def test_no_python(clone):
    assert_one_line(setup(clone), "Python 3.11 is needed")


def test_python_of_another_version(clone):
    add_python(clone, "python3", "exit 1")
    assert_one_line(setup(clone), "Python 3.11 is needed")


def real_python(clone):
    add_python(clone, "python3.11", f'exec "{sys.executable}" "$@"')


def test_torch_location_that_does_not_exist(clone):
    real_python(clone)
    assert_one_line(
        setup(clone, INFERNIX_TORCH_FIND_LINKS="no/such/place"), "INFERNIX_TORCH_FIND_LINKS", "no/such/place"
    )


def pip_that_says(clone, text):
    """Put a .venv in place whose Python is real, but whose ``pip install`` fails with this text."""
    real_python(clone)
    add_python(
        clone,
        "venv-python",
        f'case "$*" in *"pip install"*) echo "{text}" >&2; exit 1;; esac\nexec "{sys.executable}" "$@"',
    )
    (clone / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(clone.parent / "bin" / "venv-python", clone / ".venv" / "bin" / "python")


def test_no_wheel_of_torch(clone):
    pip_that_says(clone, "ERROR: No matching distribution found for torch==2.13.0+cpu")
    done = setup(clone)
    assert_one_line(done, "torch==2.13.0+cpu", "cp311", os.uname().machine, "INFERNIX_TORCH_FIND_LINKS")


def test_any_other_failure_of_pip_shows_its_end(clone):
    pip_that_says(clone, "WARNING: Location 'x' is ignored\nERROR: the disk is full")
    done = setup(clone)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "ERROR: the disk is full"
    assert "setup.log" in done.stderr.splitlines()[-1]


def test_the_second_time_nothing_is_installed(clone):
    pip_that_says(clone, "this pip must not be asked")
    stamp = clone / ".venv" / ".infernix-setup"
    assert setup(clone).returncode == 1
    assert not stamp.exists()
    probe = subprocess.run(
        ["bash", "-c", 'source <(sed -n "/^fingerprint()/,/^}/p" scripts/setup); root=$PWD; fingerprint python3.11'],
        cwd=clone,
        env={"PATH": f"{clone.parent / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    stamp.write_text(probe.stdout)
    done = setup(clone)
    assert (done.returncode, done.stderr) == (0, "")
    assert "up to date" in done.stdout
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert setup(clone).returncode == 1


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/demo", "scripts/test", ".ci/run"])
def test_scripts_can_be_run_and_stop_at_the_first_error(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True)
