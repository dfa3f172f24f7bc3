"""What every test run needs: import repairs, hypothesis profiles, the tiny checkpoint, and a real server on it."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from infernix_plugin.seams.cpu_faults import install_import_repairs

# One thread, before anything imports torch: on a busy machine, threads that wait for each other cost more than a tiny
# model has to compute.
os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}

install_import_repairs()  # vLLM asks the plugin for this; a test that imports transformers alone has to do it itself

# In CI a commit passes or fails for its own sake: the same examples every time. Everywhere else new ones are tried.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items) -> None:
    """Order the files for the workers of pytest-xdist, if there are any."""
    if hasattr(config, "workerinput"):
        from tests.workers import engines_first

        engines_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share the files among the workers."""
    from tests.workers import FromBothEnds

    return FromBothEnds(config, log)


MATRIX = "tests/server/test_matrix.py::test_matrix["


def pytest_terminal_summary(terminalreporter) -> None:
    """Print how large the matrix of protocols is, and how much of it is green."""
    stats = terminalreporter.stats
    names = {
        outcome: {report.nodeid for report in stats.get(outcome, ()) if report.nodeid.startswith(MATRIX)}
        for outcome in ("passed", "failed", "error")
    }
    size = len(set.union(*names.values()))
    if size:
        shares = Counter(name.removeprefix(MATRIX).split("-")[0] for name in names["passed"])
        green = ", ".join(f"{protocol} {count}" for protocol, count in sorted(shares.items()))
        terminalreporter.write_line(
            f"matrix protocol x stream x thinking x constraint or choice: {shares.total()} of {size} green ({green})"
        )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A complete Qwen3.5 checkpoint with an MTP head."""
    from infernix_plugin.model_executor.tiny import make_tiny_model

    directory = tmp_path_factory.mktemp("models") / "tiny"
    make_tiny_model(directory)
    return directory


@pytest.fixture(scope="session")
def tiny_server(tiny_model, tmp_path_factory) -> Iterator:
    """A `vllm serve` of the tiny checkpoint with three MTP drafts, at the address ``.url`` with the log ``.log``."""
    from tests.serving import served

    arguments = [
        str(tiny_model),
        "--served-model-name=tiny",
        "--max-model-len=2048",
        "--max-num-seqs=16",
        "--enforce-eager",
        "--enable-scale-out",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
    ]
    with served(arguments, tmp_path_factory.mktemp("server") / "server.log") as server:
        yield server
