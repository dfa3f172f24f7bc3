"""Starting and stopping, with a small stand-in for the ``vllm`` command and real processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from infernix_plugin.entrypoints.demo import server as demo
from infernix_plugin.entrypoints.demo.process_group import ProcessGroup, ended_by_signals
from tests.demo.stand_in import install

STAND_IN = """\
#!{python}
# Answers like vLLM's server, and starts a child that ignores SIGTERM, as an engine process may.
import http.server, subprocess, sys, time
arguments = dict(zip(sys.argv, sys.argv[1:]))
if sys.argv[2] == "broken":
    sys.exit("the model is broken")
if sys.argv[2] == "silent":
    time.sleep(600)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print("child", child.pid, flush=True)
print("(APIServer pid=1) ERROR 11-30 02:00:00 [x.py:1] something failed", flush=True)
print("INFO an ERROR in the middle of a line is none", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        if self.path == "/metrics":
            self.wfile.write(b\"\"\"\\
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="demo"}} 30.0
vllm:spec_decode_num_draft_tokens_total{{engine="1",model_name="demo"}} 12.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="demo"}} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} 99.0
\"\"\")
    def log_message(self, *rest):
        pass
http.server.HTTPServer(("127.0.0.1", int(arguments["--port"])), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    install(STAND_IN, tmp_path, monkeypatch)


def gone(pid, seconds=60.0):
    """Whether the process ends within the time; a zombie that nobody has buried counts as ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def child_of(log):
    return int(log.read_text().split()[1])


def test_serves_counts_and_stops_with_everything_it_started(tmp_path):
    waited = []
    with demo.serve(["model"], log=tmp_path / "log") as server:
        server.wait_until_healthy(waited.append)
        child = child_of(server.log)
        assert not gone(child, 0.2)
        assert server.draft_counts() == demo.DraftCounts(drafted=42, accepted=7)
        assert len(server.error_lines()) == 1
    assert server.exit_code() is not None
    assert gone(child)


def test_an_exception_stops_the_server_even_if_it_should_be_kept(tmp_path):
    log = tmp_path / "log"

    def interrupted():
        with demo.serve(["model"], log=log, keep=True) as server:
            server.wait_until_healthy(lambda waited: None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(child_of(log))


def test_a_kept_server_stays(tmp_path):
    with demo.serve(["model"], log=tmp_path / "log", keep=True) as server:
        server.wait_until_healthy(lambda waited: None)
    try:
        assert server.exit_code() is None
        assert server.draft_counts().drafted == 42
    finally:
        server.stop()


def test_a_server_that_dies_early_says_why(tmp_path):
    with (
        demo.serve(["broken"], log=tmp_path / "log") as server,
        pytest.raises(demo.EngineError, match=r"(?s)exit code 1 .*the model is broken"),
    ):
        server.wait_until_healthy(lambda waited: None)


def test_a_server_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "START_SECONDS", 1)
    with (
        demo.serve(["silent"], log=tmp_path / "log") as server,
        pytest.raises(demo.EngineError, match="not ready after 1 s"),
    ):
        server.wait_until_healthy(lambda waited: None)


def test_the_summary_of_a_log_names_the_exceptions(tmp_path):
    log = tmp_path / "log"
    group = ProcessGroup(["/bin/true"], log=log, environment={})
    group.wait(5)
    log.write_text("one\ntwo\n")
    assert group.log_summary().splitlines()[1:] == ["  one", "  two"]
    log.write_text(
        "(Worker pid=1) ERROR 11-30 02:33:07 [x.py:1063] Traceback (most recent call last):\n"
        "(Worker pid=1) ERROR 11-30 02:33:07 [x.py:1063] ValueError: the cause\n"
        "(Worker pid=1) ERROR 11-30 02:33:07 [y.py:9] ValueError: the cause\n"
        "some.module.EngineDeadError: see above\nlast line\n"
    )
    assert group.log_summary().splitlines()[1:] == [
        "  ValueError: the cause",
        "  some.module.EngineDeadError: see above",
    ]


def test_options_become_a_command_line():
    options = {
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 9,
        "spec": {"k": 1},
    }
    line = demo.command_line(options)
    assert line == [
        "--dtype",
        "bfloat16",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--max-model-len",
        "9",
        "--spec",
        '{"k": 1}',
    ]


def test_sigterm_stops_the_group_before_we_go(tmp_path):
    program = textwrap.dedent(
        f"""
        import os, time
        from pathlib import Path
        from infernix_plugin.entrypoints.demo.process_group import ProcessGroup, ended_by_signals
        with ended_by_signals():
            group = ProcessGroup(["/bin/sleep", "600"], log=Path({str(tmp_path / "log")!r}), environment=os.environ)
            try:
                print(group.pid, flush=True)
                time.sleep(600)
            finally:
                group.stop()
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert gone(pid)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)

    def ended():
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit):
        ended()
    assert signal.getsignal(signal.SIGTERM) is before
