"""``infernix generate`` with a stand-in for the server: what it prints of a stream, and how it starts and fails."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infernix_plugin.entrypoints.cli import app
from infernix_plugin.entrypoints.generate.waiting import EVERY, Waiting
from tests.demo.stand_in import install

STAND_IN = """\
#!{python}
import http.server, json, sys
arguments = dict(zip(sys.argv, sys.argv[1:]))
if sys.argv[2].endswith("broken"):
    sys.exit("ValueError: the model is broken")
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if self.command == "POST" else "application/json")
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(json.dumps({{"object": "list", "data": [{{"id": "m", "object": "model"}}]}}).encode())
    def do_POST(self):
        with open(sys.argv[2]) as events:
            self.answer(b"".join(b"data: " + line.encode() + b"\\n" for line in events) + b"data: [DONE]\\n\\n")
    def log_message(self, *rest):
        pass
http.server.HTTPServer(("127.0.0.1", int(arguments["--port"])), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    install(STAND_IN, tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def chunk(finish=None, **delta) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return json.dumps(event) + "\n\n"


def called(index: int, name: str, *fragments: str) -> list[str]:
    first = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": ""}}
    more = [{"index": index, "function": {"arguments": fragment}} for fragment in fragments]
    return [chunk(tool_calls=[one]) for one in (first, *more)]


def generate(tmp_path: Path, *events: str):
    stream = tmp_path / "events"
    stream.write_text("".join(events).replace("\n\n", "\n"))
    return CliRunner().invoke(app, ["generate", str(stream), "Hello."])


def test_calls_that_are_complete_survive_the_limit_and_a_cut_one_does_not(tmp_path):
    whole, cut = called(0, "f", '{"a"', ": 1}"), called(1, "g", '{"b": "x')
    result = generate(tmp_path, *whole, *cut, chunk("length"))
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"name": "f", "arguments": {"a": 1}}]
    assert (result.exit_code, "cut at the limit" in result.stderr) == (3, True)
    # The limit came between the end of the call and the end of the output.
    result = generate(tmp_path, *whole, chunk("length"))
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["f"]
    assert result.exit_code == 3


def test_content_and_reasoning_go_their_ways(tmp_path):
    result = generate(tmp_path, chunk(reasoning="hm"), chunk(content="né"), chunk(content="!"), chunk("stop"))
    assert (result.stdout, result.exit_code) == ("né!\n", 0)
    assert "hm" in result.stderr
    assert "né" not in result.stderr


def test_the_start_says_so_and_a_good_end_leaves_no_log(tmp_path):
    result = generate(tmp_path, chunk(content="a"), chunk("stop"))
    assert re.search(r"infernix: starting a server for .*, log in .*generate-\d+\.log", result.stderr)
    assert list((tmp_path / "cache").rglob("*.log")) == []


def test_the_log_that_an_error_names_is_there(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    result = CliRunner().invoke(app, ["generate", str(tmp_path / "broken"), "Hello."])
    message = str(result.exception)
    assert "the model is broken" in message
    log = Path(re.search(r"From (.*):", message)[1])
    assert "the model is broken" in log.read_text()


def test_a_wrong_constraint_is_refused_before_a_server_starts(tiny_model, tmp_path):
    grammar, schema = tmp_path / "g.gbnf", tmp_path / "s.json"
    grammar.write_text('root ::= "a" |\n  b')
    schema.write_text('{"type": "object", "minimun": 1}')
    wrong = {
        "offset 1": ("--regex", "a("),
        "2:3": ("--grammar-file", str(grammar)),
        "#/minimun": ("--json-schema-file", str(schema)),
        "[1]": ("--choice", "a", "--choice", "\ud800"),
    }
    for place, options in wrong.items():
        result = CliRunner().invoke(app, ["generate", str(tiny_model), "Hello.", *options])
        assert result.exit_code == 1, result.output
        assert result.stderr.startswith("infernix: error: ")
        assert f"(at {place})" in result.stderr
        assert "starting a server" not in result.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://host:port/v1", "ftp://host", "http://host:99999"])
def test_what_is_no_url_of_a_server_is_wrong_usage(url):
    result = CliRunner().invoke(app, ["generate", url, "Hello."])
    assert result.exit_code == 2
    assert "is no URL of a server" in " ".join(result.stderr.replace("│", " ").split())


def test_waiting_is_one_line_on_a_terminal_and_few_lines_elsewhere():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Waiting(stream, "starting") as waiting:
            for second in range(EVERY + 1):
                waiting.passed(f"{second} s")
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith(f"\rstarting ({EVERY} s)\n")
    assert file.getvalue() == f"starting\nstarting ({EVERY - 1} s)\n"
