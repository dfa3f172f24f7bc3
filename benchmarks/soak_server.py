"""Soak of a real server: 64 concurrent streams of mixed kinds with faults among them, every output judged.

    python -m benchmarks.soak_server MODEL --seconds 600 --page docs/benchmarks/soak-server.md

MODEL is a checkpoint made by `infernix make-tiny-model`. The server drafts with MTP, and its cache of compiled grammars
is so small that it has to forget constraints which are in use. It must not restart, lose a token, let an output out of
its language or grow.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.server_figures import draw
from benchmarks.server_load import Load, Tally
from benchmarks.server_watch import MIB, ServerWatch, Watched
from infernix_plugin.entrypoints.demo.server import ServerProcess, serve

CACHE_BYTES = 256 << 10
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

    @property
    def complaints(self) -> list[str]:
        """Everything that should not have happened."""
        found = [*self.tally.wrong, *self.error_lines]
        found += [f"{self.tally.lost} tokens were lost"] if self.tally.lost else []
        return found + ([] if self.alive else ["the server ended"])


def stop_token(model: Path) -> int:
    """Return the id of a stop token of a checkpoint."""
    stops = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return int(stops[0] if isinstance(stops, list) else stops)


def soak(server: ServerProcess, load: Load, *, streams: int, seconds: float) -> Soaked:
    """Load a server that is up, and judge what comes."""
    before = server.error_lines()
    with ServerWatch(server) as watch:
        tally = asyncio.run(load.run(streams, seconds))
    new = [line for line in server.error_lines() if line not in before]
    return Soaked(tally, watch.watched, server.exit_code() is None, new)


def table(soaked: Soaked, *, streams: int, seconds: float) -> str:
    """Return the page."""
    tally, watched = soaked.tally, soaked.watched
    built = watched.series("infernix_prepare_seconds_count", process="engine", cache="built")[-1]
    hits = watched.series("infernix_prepare_seconds_count", process="engine", cache="hit")[-1]
    rows = {
        "concurrent streams": f"{streams}",
        "seconds": f"{seconds:,.0f}",
        "outputs judged": f"{tally.outputs:,}",
        "tokens": f"{tally.tokens:,}",
        "faults injected": ", ".join(f"{count:,} x {name}" for name, count in sorted(tally.faults.items())),
        "grammars the engine built, found in its cache": f"{built:,.0f}, {hits:,.0f}",
        "**wrong outputs**": f"{len(tally.wrong)}",
        "**committed tokens lost**": f"{tally.lost}",
        "**lines of level ERROR**": f"{len(soaked.error_lines)}",
        "**server restarts**": f"{0 if soaked.alive else 1}",
        **{
            f"memory of {name} at the start, after a third, at the end; growth after the third": _growth(
                watched, name, seconds / 3
            )
            for name in sorted(watched.parts[-1])
        },
    }
    lines = ["| | |", "|:--|--:|", *(f"| {name} | {value} |" for name, value in rows.items())]
    kinds = ["| language | outputs |", "|:--|--:|", *(f"| {name} | {n:,} |" for name, n in sorted(tally.ended.items()))]
    return "\n".join([*lines, "", *kinds, ""])


def _growth(watched: Watched, name: str, skip: float) -> str:
    sizes = [watched.parts[index].get(name, 0) / MIB for index in (0, len(watched.parts) // 3, -1)]
    return ", ".join(f"{size:,.0f} MiB" for size in sizes) + f"; {watched.slope(name, skip):+.2f} MiB a minute"


PAGE = """# Soak of a server

Made by `python -m benchmarks.soak_server MODEL --seconds {seconds:.0f}` on the tiny checkpoint, `vllm serve` on a CPU
with MTP drafts. Streams of every kind of constraint run side by side; clients leave in the middle, send constraints
that are wrong, as expensive as the limits let them, or lead to a dead end, and the cache of compiled grammars is so
small ({cache} KiB) that constraints in use are forgotten and compiled again. Every output is judged by an oracle
that shares no code with the plugin; a stream's tokens must add up to what the server says it committed.

{table}
The worker, which runs the model, is what grows: by kernels that oneDNN compiles for vLLM, up to 1,024 of them.
[worker-memory.md](worker-memory.md) tells the processes apart and has the same of vLLM alone.

![Metrics of the run](soak-server.png)

The figures are the queries of [the dashboard](../grafana-dashboard.json), over this run.
"""


def main(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint.")],
    seconds: Annotated[float, typer.Option()] = 600.0,
    streams: Annotated[int, typer.Option()] = 64,
    seed: Annotated[int, typer.Option()] = 0,
    page: Annotated[Path | None, typer.Option(help="The page to write; its figures go beside it.")] = None,
) -> None:
    """Exit with 1 if anything was wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.log"
        with serve([str(model), *OPTIONS, *MTP, *SETTINGS], log=log) as server:
            server.wait_until_healthy(lambda waited: None)
            load = Load(server.url, stop=stop_token(model), seed=seed)
            soaked = soak(server, load, streams=streams, seconds=seconds)
    text = table(soaked, streams=streams, seconds=seconds)
    print(text)
    for complaint in soaked.complaints:
        print(f"wrong: {complaint}")
    if page is not None:
        page.write_text(PAGE.format(seconds=seconds, cache=CACHE_BYTES >> 10, table=text), encoding="utf-8")
        draw(soaked.watched, page.with_suffix(".png"))
    if soaked.complaints:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
