"""Soak of a real server: 64 concurrent streams of mixed kinds with faults among them, every output judged.

    python -m benchmarks.soak_server MODEL --seconds 600 --kernels 64 --page docs/benchmarks/soak-server.md

MODEL is a checkpoint made by `infernix make-tiny-model`. The server drafts with MTP, and its cache of compiled grammars
is so small that it has to forget constraints which are in use. It must not restart, lose a token, let an output out of
its language or grow.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.server_figures import draw
from benchmarks.server_load import Load, Tally
from benchmarks.server_watch import MIB, ServerWatch, Watched, our_metrics
from infernix_plugin.entrypoints.demo.server import ServerProcess, serve

CACHE_BYTES = 512 << 10
LATE_RECORDS = 600
"""Tenths of a second for which the records of clients that left may be late."""
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
OPTIONS = (
    "--served-model-name=tiny",
    "--max-model-len=1024",
    "--max-num-seqs=64",
    "--enforce-eager",
    "--no-enable-prefix-caching",
    # Few blocks: whatever a large KV cache did would hide what everything else does.
    "--num-gpu-blocks-override=200",
)
MTP = ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 3}))
SETTINGS = ("--additional-config", json.dumps({"infernix": {"cache_bytes": CACHE_BYTES, "max_compile_seconds": 2.0}}))


@dataclass
class Soaked:
    """What came of a soak."""

    tally: Tally
    watched: Watched
    alive: bool
    error_lines: list[str]
    uncounted: int = 0
    """Constrained outputs and refusals that the server's metrics have too few of, or too many."""
    preempted: int = 0
    """How often vLLM took a running request's memory away, which then begins again where it was."""

    @property
    def complaints(self) -> list[str]:
        """Everything that should not have happened."""
        found = [*self.tally.wrong, *self.error_lines]
        found += [f"{self.tally.lost} tokens were lost"] if self.tally.lost else []
        found += [f"{self.uncounted} outputs or refusals are not in the metrics"] if self.uncounted else []
        return found + ([] if self.alive else ["the server ended"])


def stop_token(model: Path) -> int:
    """Return the id of a stop token of a checkpoint."""
    stops = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return int(stops[0] if isinstance(stops, list) else stops)


def soak(server: ServerProcess, load: Load, *, streams: int, seconds: float) -> Soaked:
    """Load a server that is up, and judge what comes."""
    errors, counted = server.error_lines(), _counted(server)
    with ServerWatch(server) as watch:
        tally = asyncio.run(load.run(streams, seconds))
    for _ in range(LATE_RECORDS):  # the last clients that left
        now = _counted(server)
        uncounted = abs(now[0] - counted[0] - tally.due) + abs(now[1] - counted[1] - tally.refused)
        if not uncounted:
            break
        time.sleep(0.1)
    new = [line for line in server.error_lines() if line not in errors]
    alive = server.exit_code() is None
    return Soaked(tally, watch.watched, alive, new, round(uncounted), _preempted(server) if alive else 0)


def _preempted(server: ServerProcess) -> int:
    counts = re.findall(r"^vllm:num_preemptions_total\{.*\} (\S+)$", server.metrics_text(), re.MULTILINE)
    return round(sum(map(float, counts)))


def _counted(server: ServerProcess) -> tuple[float, float]:
    """Return how many constrained outputs and refusals the metrics of a server have."""
    try:
        samples = our_metrics(server)
    except OSError:  # it ended, which is a complaint of its own
        return 0.0, 0.0
    totals = Counter[str]()
    for (name, _), value in samples.items():
        totals[name] += value
    return totals["infernix_requests_total"], totals["infernix_refusals_total"]


def table(soaked: Soaked, *, streams: int, seconds: float) -> str:
    """Return the tables of the page."""
    tally, watched = soaked.tally, soaked.watched
    built = watched.series("infernix_prepare_seconds_count", process="engine", cache="built")[-1]
    hits = watched.series("infernix_prepare_seconds_count", process="engine", cache="hit")[-1]
    rows = {
        "concurrent streams": f"{streams}",
        "seconds": f"{seconds:,.0f}",
        "outputs judged": f"{tally.outputs:,}",
        "tokens": f"{tally.tokens:,}",
        "faults injected": ", ".join(f"{count:,} x {name}" for name, count in sorted(tally.faults.items())),
        "requests preempted for lack of KV cache": f"{soaked.preempted:,}",
        "grammars the engine built, found in its cache": f"{built:,.0f}, {hits:,.0f}",
        "**wrong outputs**": f"{len(tally.wrong)}",
        "**committed tokens lost**": f"{tally.lost}",
        f"**of {tally.due:,} outputs and {tally.refused:,} refusals, not in the metrics**": f"{soaked.uncounted}",
        "**lines of level ERROR**": f"{len(soaked.error_lines)}",
        "**server restarts**": f"{0 if soaked.alive else 1}",
    }
    lines = ["| | |", "|:--|--:|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    lines += [
        "| process | start | after 1/3 | after 2/3 | end | growth in the last third |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    lines += [f"| {name} | {_growth(watched, name)} |" for name in sorted(watched.parts[-1])]
    lines += ["", "| job | outputs |", "|:--|--:|", *(f"| {name} | {n:,} |" for name, n in sorted(tally.ended.items()))]
    return "\n".join([*lines, ""])


def _growth(watched: Watched, name: str) -> str:
    last = len(watched.parts) - 1
    sizes = [watched.parts[index].get(name, 0) / MIB for index in (0, last // 3, 2 * last // 3, last)]
    slope = watched.slope(name, watched.seconds[2 * last // 3])
    return " | ".join([*(f"{size:,.0f} MiB" for size in sizes), f"{slope:+.2f} MiB a minute"])


PAGE = """# Soak of a server

Made by `{command}` on the tiny checkpoint, `vllm serve` on a CPU with MTP drafts. Streams of every kind of constraint
run side by side, in Chat, Responses and Messages, with several outputs of a request, behind reasoning, and as forced
calls. Clients leave in the middle, send constraints that are wrong, as expensive as the limits let them, or lead to a
dead end. The cache of compiled grammars is so small ({cache} KiB) that constraints in use are forgotten and compiled
again, and so is the KV cache, so that requests are preempted. Every output is judged by an oracle that shares no code
with the plugin, and its record by how it ended. The tokens of a Chat stream must add up to what the server says it
committed, and the server's metrics to what the clients saw.

{table}
Slopes are least squares over resident memory. {memory}
Helpers are processes that compile; one that has grown by 256 MiB, a quarter of `max_compile_bytes`, is replaced.

![Every panel of the dashboard over the run](soak-server.png)

The figures are the queries of [the dashboard](../grafana-dashboard.json), over this run, each rate over 20 seconds.
"""
MEMORY = """oneDNN kept {kernels} kernels in this run (`ONEDNN_PRIMITIVE_CACHE_CAPACITY`); by itself it keeps 1,024, and
the worker, which runs the model, grows until it has them: [worker-memory.md](worker-memory.md)."""
MEMORY_OF_ALL = """The worker, which runs the model, is what grows: by kernels that oneDNN compiles for vLLM, up to
1,024 of them. [worker-memory.md](worker-memory.md) tells the processes apart and has the same of vLLM alone."""


def main(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint.")],
    seconds: Annotated[float, typer.Option()] = 600.0,
    streams: Annotated[int, typer.Option()] = 64,
    seed: Annotated[int, typer.Option()] = 0,
    kernels: Annotated[int | None, typer.Option(help="How many kernels oneDNN may keep.")] = None,
    page: Annotated[Path | None, typer.Option(help="The page to write; its figures go beside it.")] = None,
) -> None:
    """Exit with 1 if anything was wrong."""
    if kernels is not None:
        os.environ[KERNELS] = str(kernels)
    # Otherwise a client whose event loop is late sends on a connection that the server is closing for being idle.
    os.environ["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = "60"
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.log"
        with serve([str(model), *OPTIONS, *MTP, *SETTINGS], log=log) as server:
            server.wait_until_healthy(lambda waited: None)
            load = Load(server.url, stop=stop_token(model), seed=seed)
            soaked = soak(server, load, streams=streams, seconds=seconds)
            samples = server.metrics_text() if soaked.alive else ""
    text = table(soaked, streams=streams, seconds=seconds)
    print(text)
    print("\n".join(line for line in samples.splitlines() if re.match(r"(# HELP )?infernix_", line)))
    for complaint in soaked.complaints:
        print(f"wrong: {complaint}")
    if page is not None:
        command = f"python -m benchmarks.soak_server MODEL --seconds {seconds:.0f}"
        command += "" if kernels is None else f" --kernels {kernels}"
        memory = MEMORY_OF_ALL if kernels is None else MEMORY.format(kernels=kernels)
        told = PAGE.format(command=command, cache=CACHE_BYTES >> 10, table=text, memory=memory)
        page.write_text(told, encoding="utf-8")
        draw(soaked.watched, page.with_suffix(".png"))
    if soaked.complaints:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
