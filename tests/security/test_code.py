"""What the package's own code may not do: run text as code, unpickle, or reach out from the language side."""

import ast
from pathlib import Path

import pytest

from infernix_plugin.errors import printable

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
SHARES = {
    *("tempfile", "socket", "multiprocessing", "shutil", "subprocess", "fcntl", "mmap", "dbm", "sqlite3", "ctypes"),
    *("os.environ", "os.getenv"),
}
"""What processes share on one machine only; a worker on another machine has neither the files nor the variables."""
COMMANDS = ("entrypoints/cli.py", "entrypoints/demo/", "model_executor/demo_model.py", "model_executor/tiny/")
"""What runs on an operator's terminal, and in no server."""
CHILDREN = "isolation/"
"""The processes that compile for a server: its own children, on sockets that they are born with."""
READS_VARIABLES = {
    "settings.py": "where an engine is configured",
    "entrypoints/model_name.py": "of vLLM, where a server starts",
    "seams/versions.py": "INFERNIX_DISABLE, whether the plugin is there at all; processes compare that",
}
UNSAFE_FLAGS = {"shell", "allow_pickle", "trust_remote_code"}
UNSAFE_CALLS = {"os.system", "os.popen", "torch.load", "builtins.eval", "builtins.exec", "builtins.compile"}
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
        if isinstance(node, ast.keyword) and node.arg in UNSAFE_FLAGS and getattr(node.value, "value", True):
            yield f"{name}:{node.value.lineno} sets {node.arg}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in UNSAFE_CALLS:
            yield f"{name}:{node.lineno} uses {ast.unparse(node)}"
        if isinstance(node, ast.Name) and node.id == "__builtins__":
            yield f"{name}:{node.lineno} uses {node.id}"
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
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "AutoTokenizer.from_pretrained('x', trust_remote_code=flag)",
        "torch.load('x')",
        "import builtins\nbuiltins.exec('1')",
        "import os\nos.system('ls')",
        "__builtins__['eval']('1')",
    ],
)
def test_the_check_sees(text):
    assert list(faults_in(ast.parse(text), "grammar/x.py", True))
    assert not list(
        faults_in(ast.parse("import re, json\nfrom urllib.parse import unquote\nre.compile('a')"), "x", True)
    )


def sharing_in(tree, name):
    for node in ast.walk(tree):
        found = {ast.unparse(node)} if isinstance(node, ast.Attribute) else set(modules_of(node))
        for what in found & SHARES:
            if not (what.startswith("os.") and name in READS_VARIABLES):
                yield f"{name}:{node.lineno} uses {what}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_server_shares_nothing_by_files_or_variables(path):
    name = str(path.relative_to(PACKAGE))
    if not name.startswith((*COMMANDS, CHILDREN)):
        assert list(sharing_in(ast.parse(path.read_text(encoding="utf-8")), name)) == []


@pytest.mark.parametrize(
    "text",
    ["import tempfile", "from multiprocessing import shared_memory", "import os\nos.environ['X']", "import fcntl"],
)
def test_the_check_sees_what_is_shared(text):
    assert list(sharing_in(ast.parse(text), "seams/x.py"))
    assert not list(sharing_in(ast.parse("import os\nos.environ['X']"), "settings.py"))


def test_a_client_writes_no_line_of_the_log():
    """The name that a client gives its request may hold line breaks and what moves a terminal's cursor."""
    found = 0
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
                for argument in node.args:
                    text = ast.unparse(argument)
                    found += "request_id" in text
                    assert "request_id" not in text or text == "printable(request.request_id)", path
    assert found >= 5
    assert printable("chatcmpl-1") == "chatcmpl-1"
    assert printable("a\r\nERROR \x1b[31m\u2028\x85") == "a\\r\\nERROR \\x1b[31m\\u2028\\x85"
    assert len(printable("x" * 1_000_000)) < 500
