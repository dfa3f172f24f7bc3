"""Coverage, time to first mask and time per mask over MaskBench schemas: this project beside vLLM's own backends.

    python benchmarks/maskbench.py HARNESS DATA TOKENIZER --out docs/benchmarks

``HARNESS`` is a folder with ``run.py``, which walks the instances of every schema through one engine in a guarded,
single-threaded worker process and writes a line of JSON per schema; ``DATA`` holds the schema files and ``TOKENIZER`` a
``tokenizer.json``. One invocation runs all engines one after another on the same machine and list, and writes
``maskbench.md``, ``maskbench.svg`` and, with ``--results``, the raw lines. All times are CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from infernix_plugin.testing.tokenizer_folder import tokenizer_folder

SUB_BINS = 16
"""Bins in each power of two of the harness's histograms of nanoseconds."""


@dataclass(frozen=True)
class Engine:
    """How the harness finds an engine, and what the table calls it."""

    title: str
    name: str
    options: str = ""


ENGINES = (
    Engine("vLLM xgrammar", "xgrammar"),
    Engine("vLLM guidance", "llguidance"),
    Engine("infernix-plugin", "infernix_plugin.testing.maskbench:factory", '{"unknown_keywords":"ignore"}'),
)


@dataclass(frozen=True)
class Latency:
    """A distribution of durations in microseconds; ``points`` are (value, count), ascending."""

    mean: float
    largest: float
    points: tuple[tuple[float, int], ...]

    def percentile(self, share: float) -> float:
        """Return the nearest-rank percentile, ``share`` in 0..100."""
        rank, seen = max(1.0, sum(count for _, count in self.points) * share / 100), 0
        for value, count in self.points:
            seen += count
            if seen >= rank:
                return min(value, self.largest)
        return self.largest


@dataclass(frozen=True)
class Summary:
    """What one engine did on the list."""

    title: str
    schemas: int
    passing: int
    weighted: float
    """Passing schemas in percent, every stratum weighted by its size in the full corpus."""
    refused: int
    broken: int
    """Crashes and time-outs."""
    invalid_accepted: int
    """Schemas with an invalid instance that got through."""
    valid_refused: int
    """Schemas with a valid instance that was refused for another reason than the order of its keys."""
    order_refused: int
    first_mask: Latency
    mask: Latency


def main(
    harness: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    tokenizer: Annotated[Path, typer.Argument(callback=tokenizer_folder)],
    out: Annotated[Path, typer.Option(help="Folder for the table and the plot.")] = Path("docs/benchmarks"),
    results: Annotated[Path | None, typer.Option(help="Folder for the raw results; temporary by default.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first schemas of the list.")] = None,
) -> None:
    """Run all engines and write the report."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = results or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        sizes = strata_sizes((harness / "lists" / "strata.tsv").read_text(encoding="utf-8"))
        summaries = []
        for engine in ENGINES:
            lines = folder / f"{engine.title.replace(' ', '-')}.jsonl"
            run(engine, harness, data, tokenizer, lines, limit)
            summaries.append(summarise(engine.title, records(lines), sizes))
    out.mkdir(parents=True, exist_ok=True)
    (out / "maskbench.md").write_text(page(summaries), encoding="utf-8")
    plot(summaries, out / "maskbench.svg")
    typer.echo(table(summaries))


def run(engine: Engine, harness: Path, data: Path, tokenizer: Path, lines: Path, limit: int | None) -> None:
    """Run one engine over the public list."""
    command = [sys.executable, str(harness / "run.py"), "--engine", engine.name, "--list", "public"]
    command += ["--engine-options", engine.options, "--out", str(lines), "--tokenizer", str(tokenizer)]
    command += ["--limit", str(limit)] if limit else []
    typer.echo(f"{engine.title} ...", err=True)
    subprocess.run(command, check=True, env=os.environ | {"MASKBENCH_DATA": str(data)})


def records(lines: Path) -> list[dict[str, Any]]:
    """Return the lines of one results file that are about a schema."""
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "name" in row]


def strata_sizes(table_text: str) -> dict[str, int]:
    """Read the sizes of the strata in the full corpus: a name and a count a line."""
    sizes = {}
    for line in table_text.splitlines():
        fields = line.split("#", 1)[0].split()
        if len(fields) >= 2 and fields[1].isdigit():
            sizes[fields[0]] = int(fields[1])
    return sizes


def stratum_of(name: str, sizes: Iterable[str]) -> str:
    """Return the stratum of a schema file: the longest one that begins its name."""
    return max((size for size in sizes if name.startswith(size)), key=len)


def summarise(title: str, rows: Sequence[dict[str, Any]], sizes: dict[str, int]) -> Summary:
    """Condense one engine's records."""
    outcomes = Counter(row["outcome"] for row in rows)
    order_only = [
        row for row in rows if row["outcome"] == "validation_error" and row["order_only"] == row["valid_refused"]
    ]
    seen, good = Counter[str](), Counter[str]()
    for row in rows:
        stratum = stratum_of(row["name"], sizes)
        seen[stratum] += 1
        good[stratum] += row["outcome"] == "pass"
    first = sorted(float(row["ttfm_us"]) for row in rows if "ttfm_us" in row)
    timeouts = [20e6] * sum(row["outcome"] == "timeout" and "ttfm_us" not in row for row in rows)
    return Summary(
        title,
        schemas=len(rows),
        passing=outcomes["pass"],
        weighted=100 * sum(sizes[s] * good[s] / seen[s] for s in seen) / sum(sizes[s] for s in seen),
        refused=outcomes["compile_error"],
        broken=outcomes["crash"] + outcomes["timeout"],
        invalid_accepted=sum(bool(row.get("invalid_accepted")) for row in rows),
        valid_refused=outcomes["validation_error"] - len(order_only),
        order_refused=len(order_only),
        first_mask=of_values(first + timeouts),
        mask=of_histograms([row["tbm"] for row in rows if "tbm" in row]),
    )


def of_values(values: Sequence[float]) -> Latency:
    """Return the distribution of single durations, in microseconds."""
    if not values:
        return Latency(float("nan"), float("nan"), ())
    return Latency(sum(values) / len(values), max(values), tuple((value, 1) for value in sorted(values)))


def of_histograms(parts: Sequence[dict[str, Any]]) -> Latency:
    """Merge histograms of nanoseconds: exact count, sum and maximum, percentiles within 3 %."""
    bins = Counter[int]()
    for part in parts:
        for place, count in zip(part["bins"][::2], part["bins"][1::2], strict=True):
            bins[place] += count
    total = sum(part["n"] for part in parts)
    mean = sum(part["sum_ns"] for part in parts) / total / 1000 if total else float("nan")
    largest = max((part["max_ns"] for part in parts), default=0) / 1000
    return Latency(mean, largest, tuple((middle_of(place) / 1000, bins[place]) for place in sorted(bins)))


def middle_of(place: int) -> float:
    """Return the middle of a histogram bin, in nanoseconds."""
    if place < 2 * SUB_BINS:
        return float(place)
    shift = place // SUB_BINS - 1
    return ((place - SUB_BINS * shift) << shift) + (1 << shift) / 2


def table(summaries: Sequence[Summary]) -> str:
    """Return the Markdown table."""

    def times(latency: Latency, *, unit: float, digits: int) -> str:
        values = [latency.mean, *(latency.percentile(share) for share in (50, 90, 99)), latency.largest]
        return " / ".join(f"{value / unit:,.{digits}f}" for value in values)

    rows = [
        ("schemas", [f"{s.schemas}" for s in summaries]),
        ("passing", [f"{s.passing}" for s in summaries]),
        ("passing, weighted to the full corpus", [f"{s.weighted:.1f} %" for s in summaries]),
        ("schemas refused", [f"{s.refused}" for s in summaries]),
        ("schemas with an invalid instance accepted", [f"{s.invalid_accepted}" for s in summaries]),
        ("schemas with a valid instance refused", [f"{s.valid_refused}" for s in summaries]),
        ("the same, for the order of keys alone", [f"{s.order_refused}" for s in summaries]),
        ("crash or time-out", [f"{s.broken}" for s in summaries]),
        (
            "first mask, ms: avg / p50 / p90 / p99 / max",
            [times(s.first_mask, unit=1000, digits=1) for s in summaries],
        ),
        ("mask, us: avg / p50 / p90 / p99 / max", [times(s.mask, unit=1, digits=1) for s in summaries]),
    ]
    lines = ["| | " + " | ".join(s.title for s in summaries) + " |", "|:--|" + "--:|" * len(summaries)]
    lines += [f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows]
    return "\n".join(lines)


def page(summaries: Sequence[Summary]) -> str:
    """Return the documentation page."""
    return f"""# MaskBench

{summaries[0].schemas} public JSON schemas with their valid and invalid instances, the Qwen3 vocabulary, one thread,
CPU time, all engines in one run of `benchmarks/maskbench.py`. vLLM's backends run with vLLM's defaults (one compile
thread); ours runs with `unknown_keywords = "ignore"`, as theirs do. A schema passes when its valid instances can be
generated as they are written and its invalid ones cannot. A time-out counts as 20 s.

{table(summaries)}

![Distribution of the times](maskbench.svg)

What is not reached, and why: [README.md](README.md#what-is-not-reached).
"""


def plot(summaries: Sequence[Summary], target: Path) -> None:
    """Draw the distributions of both times."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "maskbench"  # the same figures give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    for axis, title, pick in (
        (axes[0], "time to first mask, ms", lambda s: (s.first_mask, 1000)),
        (axes[1], "time per mask, us", lambda s: (s.mask, 1)),
    ):
        for summary in summaries:
            latency, unit = pick(summary)
            total, seen = sum(count for _, count in latency.points), 0
            xs, ys = [], []
            for value, count in latency.points:
                seen += count
                xs.append(value / unit)
                ys.append(100 * seen / total)
            axis.step(xs, ys, where="post", label=summary.title)
        axis.set_xscale("log")
        axis.set_xlabel(title)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("percent at most this long")
    axes[1].legend(loc="lower right")
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    typer.run(main)
