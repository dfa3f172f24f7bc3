"""What the package's own code may not do: run text as code, unpickle, or reach out from the language side."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "infernix_plugin"
FILES = sorted(PACKAGE.glob("**/*.py"))

RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
UNPICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle", "yaml"}
REACHES_OUT = {
    *(
        "socket",
        "ssl",
        "http",
        "urllib3",
        "requests",
        "httpx",
        "aiohttp",
        "ftplib",
        "smtplib",
        "telnetlib",
        "webbrowser",
    ),
    *("subprocess", "multiprocessing", "ctypes", "os", "shutil", "tempfile", "urllib.request", "importlib"),
}
LANGUAGE_SIDE = ("grammar", "matching", "framing", "structured_output", "observation")
ALLOWED = {
    # The one file that reads a tokenizer from a directory which the operator names.
    ("matching/pretrained.py", "os"),
    ("matching/pretrained.py", "importlib"),
}


def modules_of(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def faults_in(tree, name, language_side):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
            yield f"{name}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.keyword) and node.arg == "shell" and getattr(node.value, "value", True):
            yield f"{name}:{node.value.lineno} uses a shell"
        for module in modules_of(node):
            forbidden = UNPICKLES | (REACHES_OUT if language_side else set())
            parts = module.split(".")
            for end in range(1, len(parts) + 1):
                found = ".".join(parts[:end])
                if found in forbidden and (name, found) not in ALLOWED:
                    yield f"{name}:{node.lineno} imports {found}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_does(path):
    name = str(path.relative_to(PACKAGE))
    language_side = name.split("/")[0] in LANGUAGE_SIDE
    assert list(faults_in(ast.parse(path.read_text(encoding="utf-8")), name, language_side)) == []


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "exec('1')",
        "import pickle",
        "from pickle import loads",
        "def f():\n    import marshal",
        "import urllib.request",
        "from urllib import request",
        "import socket",
        "import subprocess\nsubprocess.run('ls', shell=True)",
    ],
)
def test_the_check_sees(text):
    assert list(faults_in(ast.parse(text), "grammar/x.py", True))
    assert not list(
        faults_in(ast.parse("import re, json\nfrom urllib.parse import unquote\nre.compile('a')"), "x", True)
    )
