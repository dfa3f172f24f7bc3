"""Every seam against the sources of each supported vLLM that is at hand, not only of the one that is installed.

``INFERNIX_VLLM_SOURCES`` names wheels of vLLM, or folders with an unpacked one, separated like the entries of ``PATH``:

    pip download --no-deps --dest wheels 'vllm==0.33.*'
    INFERNIX_VLLM_SOURCES=wheels/vllm-0.33.0-....whl scripts/test tests/seams/test_compatibility_gate.py
"""

import ast
import importlib.util
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from infernix_plugin import seams
from infernix_plugin.seams.versions import SUPPORTED, installed_release, installed_version
from tests.seams.vllm_sources import Missing, Sources, bound_names

LANGUAGE_SIDE = ("grammar", "matching", "framing", "testing")
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


def _targets(seam):
    return {seam.attribute: seam.parameters} | {f"{seam.attribute}.{one}": names for one, names in seam.members.items()}


def _misfits(sources, seam):
    """What is not as the seam expects it."""
    found = []
    for target, expected in _targets(seam).items():
        try:
            parameters = sources.parameters(seam.module, target)
        except Missing as missing:
            found.append(str(missing))
            continue
        if parameters != expected:
            found.append(f"{target}{parameters}")
    if not found and not sources.is_own(seam.module, seam.attribute):
        found.append(f"{seam.attribute} is inherited")
    return found


@pytest.mark.parametrize("seam", seams.ALL, ids=lambda seam: seam.target)
def test_every_seam_fits(sources, seam):
    if sources.release not in seam.releases:
        pytest.skip(f"the seam is not for vLLM {sources.version}")
    assert _misfits(sources, seam) == []


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


def _read_of_others():
    """The names that the vLLM-facing code reads off objects, and that are not its own: {name: a file that does}."""
    own, found = set(), {}
    for path in sorted((ROOT / "infernix_plugin").glob("**/*.py")):
        outward = path.relative_to(ROOT / "infernix_plugin").parts[0] not in LANGUAGE_SIDE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                    own.add(name)
                case ast.ClassDef(name, _, _, body):
                    own.add(name)
                    for field in body:
                        own.update(bound_names(field))
                case ast.Attribute(ast.Name("self"), name, ast.Store()):
                    own.add(name)
                case ast.Attribute(_, name):
                    found.update({name: path.name} if outward else {})
                case ast.Call(ast.Name("getattr" | "hasattr"), [_, ast.Constant(str(name)), *_]):
                    found.update({name: path.name} if outward else {})
    return {name: place for name, place in found.items() if name not in own}


def test_every_name_that_is_read_is_still_in_use(sources):
    """No check of meaning: a name that vLLM's own sources had and have no more was renamed or removed."""
    if isinstance(sources, Installed):
        pytest.skip("others are compared with it")
    names = _read_of_others()
    known = Installed().words()
    read = {name: place for name, place in names.items() if name in known}
    assert len(read) > 200
    assert {"input_batch", "scheduled_spec_decode_tokens", "structured_output_request"} <= read.keys()
    present = sources.words()
    assert not {name: place for name, place in read.items() if name not in present}


@contextmanager
def _renamed(found):
    name, found.name = found.name, "moved"
    yield
    found.name = name


@contextmanager
def _extended(found):
    """One more parameter, with a default, which no call of vLLM's own would notice."""
    constructor = next((one for one in getattr(found, "body", ()) if getattr(one, "name", "") == "__init__"), None)
    arguments = getattr(constructor or found, "args", None)
    if arguments is None:  # a class whose parameters are its fields
        found.body.append(ast.AnnAssign(ast.Name("added", ast.Store()), ast.Name("int", ast.Load()), None, 1))
        yield
        found.body.pop()
    else:
        arguments.kwonlyargs.append(ast.arg("added"))
        yield
        arguments.kwonlyargs.pop()


@pytest.mark.parametrize("seam", seams.ALL, ids=lambda seam: seam.target)
def test_a_change_of_any_target_is_seen(sources, seam):
    if sources.release not in seam.releases:
        pytest.skip(f"the seam is not for vLLM {sources.version}")
    for target in _targets(seam):
        found, _ = sources.definition(seam.module, target)
        for change in (_renamed, _extended):
            with change(found):
                assert _misfits(sources, seam), target
            assert not _misfits(sources, seam)


def test_a_seam_that_moved_is_seen(sources):
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.engine.core", "NoSuchManager")
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.engine.core", "StructuredOutputManager.no_such_method")
    with pytest.raises(Missing):
        sources.parameters("vllm.v1.no_such_module", "Anything")
    assert sources.parameters("vllm.v1.engine.core", "StructuredOutputManager.accept_tokens")[0] == "self"
