"""Every seam against the sources of each supported vLLM that is at hand, not only of the one that is installed.

``INFERNIX_VLLM_SOURCES`` names wheels of vLLM, or folders with an unpacked one, separated like the entries of ``PATH``:

    pip download --no-deps --dest wheels 'vllm==0.33.*'
    INFERNIX_VLLM_SOURCES=wheels/vllm-0.33.0-....whl scripts/test tests/seams/test_compatibility_gate.py
"""

import ast
import importlib.util
import os
from functools import cache
from pathlib import Path

import pytest

from infernix_plugin import seams
from infernix_plugin.seams.versions import SUPPORTED, installed_release, installed_version
from tests.seams.vllm_sources import Missing, Sources

ROOT = Path(__file__).parents[2]
VARIABLE = "INFERNIX_VLLM_SOURCES"
GIVEN = [Path(place) for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]


class Installed(Sources):
    """The installed vLLM, read like the others, so that the reader itself is tested."""

    def __init__(self) -> None:
        package = Path(importlib.util.find_spec("vllm").origin).parent
        self._names = {str(path.relative_to(package.parent)) for path in package.glob("**/*.py")}
        self._read = lambda name: (package.parent / name).read_text(encoding="utf-8")
        self.version, self.release = installed_version(), installed_release()
        self.module = cache(self._module)


@pytest.fixture(scope="module", params=["installed", *GIVEN], ids=lambda place: Path(place).name)
def sources(request):
    return Installed() if request.param == "installed" else Sources(request.param)


@pytest.mark.parametrize("wanted", SUPPORTED, ids=lambda release: ".".join(map(str, release)))
def test_every_supported_release_is_looked_at(wanted):
    looked_at = {installed_release(), *(Sources(place).release for place in GIVEN)}
    if wanted not in looked_at:
        pytest.skip(f"no sources of vLLM {wanted[0]}.{wanted[1]} are given: set {VARIABLE} to its wheel")


def test_given_sources_are_of_a_supported_release(sources):
    assert sources.release in SUPPORTED, f"vLLM {sources.version} is not supported"


@pytest.mark.parametrize("seam", seams.ALL, ids=lambda seam: seam.target)
def test_every_seam_fits(sources, seam):
    if sources.release not in seam.releases:
        pytest.skip(f"the seam is not for vLLM {sources.version}")
    assert sources.parameters(seam.module, seam.attribute) == seam.parameters
    for name, parameters in seam.members.items():
        assert sources.parameters(seam.module, f"{seam.attribute}.{name}") == parameters, name


def _imports():
    """What the plugin imports from vLLM: {(module, name): the file that does}."""
    found = {}
    for path in sorted((ROOT / "infernix_plugin").glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                for alias in node.names:
                    found[node.module, alias.name] = path.relative_to(ROOT)
    return found


def test_every_name_that_is_imported_is_there(sources):
    imports = _imports()
    assert len(imports) > 40
    missing = {
        f"{module}.{name}": str(path) for (module, name), path in imports.items() if not sources.has(module, name)
    }
    assert not missing
    assert not sources.has("vllm.v1.engine", "NoSuchName")


def test_a_seam_that_moved_is_seen(sources):
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.engine.core", "NoSuchManager")
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.engine.core", "StructuredOutputManager.no_such_method")
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.no_such_module", "Anything")
    assert sources.parameters("vllm.v1.engine.core", "StructuredOutputManager.accept_tokens")[0] == "self"
