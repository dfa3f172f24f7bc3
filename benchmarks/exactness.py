"""Are the outputs of a constrained request distributed as without speculation? One row per proposer and setting.

    python -m benchmarks.exactness run MODEL results.jsonl --samples 10000
    python -m benchmarks.exactness page results.jsonl soak.jsonl

MODEL is a checkpoint made by `infernix make-tiny-model`. `run` goes through the proposers with the plugin, then through
those that vLLM has itself with its own manager and sampler, and appends a JSON line for each; `page` writes
docs/benchmarks/exactness.md from those lines and from the lines of benchmarks/soak_speculation.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.soak_speculation import Tally
from tests.engine.exactness import SETTINGS, Greedy, Subject
from tests.engine.proposers import NONE, PROPOSERS, engine_arguments
from tests.engine.vllm_alone import install_repairs_only
from tests.oracles.output_law import ChiSquare, Law, against_each_other, against_law

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "exactness.md"
PLUGIN, VLLM = "infernix-plugin", "vLLM alone"
LEAST_P = 0.001

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Row:
    """One engine under one setting; ``greedy_*`` are the engine's, of all settings."""

    system: str
    proposer: str
    setting: str
    samples: int
    drafted: int
    accepted: int
    illegal: int
    law_chi_square: float
    law_freedom: int
    law_p: float
    plain_chi_square: float
    plain_freedom: int
    plain_p: float
    greedy_outputs: int
    greedy_ties: int
    greedy_different: int


@dataclass
class Baseline:
    """What the engine without speculation gives."""

    laws: list[Law]
    outputs: list[list[tuple[int, ...]]]
    greedy: list[Greedy]


@app.command()
def run(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint; drafts are made beside it.")],
    results: Annotated[Path, typer.Argument(help="A line is appended for each row.")],
    samples: Annotated[int, typer.Option(help="For each proposer and setting.")] = 10_000,
    only: Annotated[str, typer.Option(help="Only proposers whose name contains this.")] = "",
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Measure."""
    plain = Subject(model, engine_arguments(NONE, model.parent))
    laws = plain.laws()
    outputs = [plain.sample(setting, samples, seed).outputs for setting in SETTINGS.values()]
    baseline = Baseline(laws, outputs, plain.greedy())
    plain.close()
    seeds = count(seed + samples, samples)  # engines with the same seeds would draw the same first tokens
    for number, subject in enumerate(_subjects(model.parent)):
        first = next(seeds)
        if only not in subject.proposer:
            continue
        print(f"{number + 1}: {subject.system}, {subject.proposer}", flush=True)
        for row in _measure(model, subject, baseline, samples, first):
            print(f"   {row.setting}: p = {row.law_p:.3g} and {row.plain_p:.3g}", flush=True)
            with results.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")


@app.command()
def page(
    results: Annotated[Path, typer.Argument(help="What `run` wrote.")],
    soak: Annotated[Path | None, typer.Argument(help="What soak_speculation.py wrote.")] = None,
) -> None:
    """Write the page of the documentation."""
    rows = [Row(**json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]
    tallies = [Tally(**json.loads(line)) for line in soak.read_text(encoding="utf-8").splitlines()] if soak else []
    PAGE.write_text("\n".join([*_exactness_page(rows), *_soak_page(tallies)]) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Subject:
    system: str
    proposer: str
    arguments: dict[str, Any]
    prepare: Callable[[], None] | None = None


def _subjects(drafts: Path) -> Iterator[_Subject]:
    for name, proposer in PROPOSERS.items():
        arguments = engine_arguments(name, drafts)
        yield _Subject(PLUGIN, name, arguments)
        speculation = arguments["speculative_config"]
        if speculation["method"] == "ngram":
            speculation = speculation | {"prompt_lookup_max": 5, "prompt_lookup_min": 3}
            yield _Subject(VLLM, "n-gram", {"speculative_config": speculation}, install_repairs_only)
        elif not proposer.settings and name != "DFlash2":  # which vLLM has on its GPU runner only
            yield _Subject(VLLM, name, {"speculative_config": speculation}, install_repairs_only)
    yield _Subject(PLUGIN, NONE, engine_arguments(NONE, drafts))  # a second time: what the tests say of equal engines


def _measure(model: Path, subject: _Subject, baseline: Baseline, samples: int, seed: int) -> Iterator[Row]:
    engine = Subject(model, subject.arguments, subject.prepare)
    try:
        greedy = list(zip(baseline.greedy, engine.greedy(), strict=True))
        different = sum(expected.differs(found) for expected, found in greedy)
        unequal = sum(expected.tokens != found.tokens for expected, found in greedy)
        for (name, setting), law, plain in zip(SETTINGS.items(), baseline.laws, baseline.outputs, strict=True):
            sample = engine.sample(setting, samples, seed)
            by_law, by_plain = against_law(sample.outputs, law), against_each_other(sample.outputs, plain)
            yield Row(
                system=subject.system,
                proposer=subject.proposer,
                setting=name,
                samples=samples,
                drafted=sample.drafted,
                accepted=sample.accepted,
                illegal=sample.illegal,
                law_chi_square=by_law.statistic,
                law_freedom=by_law.freedom,
                law_p=by_law.p,
                plain_chi_square=by_plain.statistic,
                plain_freedom=by_plain.freedom,
                plain_p=by_plain.p,
                greedy_outputs=len(greedy),
                greedy_ties=unequal - different,
                greedy_different=different,
            )
    finally:
        engine.close()


_INTRODUCTION = """\
# Exactness of constrained speculation

Made by `python -m benchmarks.exactness` on the tiny checkpoint, with the real vLLM engine on a CPU. A constraint of 31
strings, cut at 3 tokens, is sampled with every proposer. The law of its outputs is enumerated in float64 from the
model's own unconstrained log-probabilities: *p law* is the chi-square test against it, *p plain* the one against
the outputs of the engine without speculation. p below 0.001 is a failure. *Rejected* are all drafts that were not
accepted, with those behind a rejected one. *Illegal* counts the steps with an illegal draft; vLLM drops its own before
it counts anything. *vLLM alone* is vLLM's own manager and rejection sampler, with those repairs of its CPU backend
without which it reads uninitialised memory; proposer *none* is the engine without speculation a second time. Chi-square
is given with its degrees of freedom.

| | proposer | drawn at | samples | drafts | accepted | rejected | illegal | chi2 law | p law | chi2 plain | p plain | |
|:--|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|"""
_ROUNDING = """\
So many samples begin to see bfloat16: the law comes from prefills, the samples from steps of other shapes, which round
in other places. Between steps that verify drafts and steps of one token, the lead of the best token over the next one
differs by 0.017 nats (root mean square over 280 greedy tokens, measured once). By estimate that adds 1 to 4 to each
chi-square of 4,000 samples."""
_GREEDY = """
Greedy outputs for constraints of every kind, token by token against those without speculation. A tie is a first
difference at which the two best tokens are less than 0.125 nats apart: one step of several positions rounds in other
places than several steps of one, and logits are bfloat16.

| | proposer | outputs | equal | ties | different |
|:--|:--|--:|--:|--:|--:|"""
_SOAK = """
## Soak

Made by `python -m benchmarks.soak_speculation`: choices, regular expressions, grammars and JSON schemas in one batch
with unconstrained requests, several outputs of one request, temperatures from 0 to 1.5, penalties and aborts. Every
output is judged by an oracle that shares no code with the plugin. Of JSON that was cut only the structure is judged;
its tokens are counted apart.

| proposer | tokens judged | of cut JSON | outputs | aborted | drafts | accepted | illegal drafts | illegal tokens |
|:--|--:|--:|--:|--:|--:|--:|--:|--:|"""


def _exactness_page(rows: list[Row]) -> list[str]:
    lines = [_INTRODUCTION]
    for row in rows:
        cells = [
            row.system,
            row.proposer,
            row.setting,
            f"{row.samples:,}",
            f"{row.drafted:,}",
            f"{row.accepted:,}",
            f"{row.drafted - row.accepted:,}",
            f"{row.illegal:,}" if row.system == PLUGIN else "",
            f"{row.law_chi_square:,.1f} / {row.law_freedom}",
            f"{row.law_p:.2g}",
            f"{row.plain_chi_square:,.1f} / {row.plain_freedom}",
            f"{row.plain_p:.2g}",
            "equal" if min(row.law_p, row.plain_p) > LEAST_P else "**biased**",
        ]
        lines.append(_line(cells))
    lines += ["", *_together(rows), _GREEDY]
    for row in {(row.system, row.proposer): row for row in rows}.values():
        equal = row.greedy_outputs - row.greedy_ties - row.greedy_different
        lines.append(
            _line([row.system, row.proposer, row.greedy_outputs, equal, row.greedy_ties, row.greedy_different])
        )
    return lines


def _together(rows: list[Row]) -> Iterator[str]:
    yield "The plugin's proposers together, whose samples are independent, against the law:"
    yield ""
    for setting in SETTINGS:
        own = [row for row in rows if (row.system, row.setting) == (PLUGIN, setting) and row.proposer != NONE]
        summed = ChiSquare(sum(row.law_chi_square for row in own), sum(row.law_freedom for row in own))
        samples = sum(row.samples for row in own)
        yield f"- {setting}: {samples:,} samples, {summed.statistic:.1f} / {summed.freedom}, p = {summed.p:.2g}"
    yield ""
    yield _ROUNDING


def _soak_page(tallies: list[Tally]) -> list[str]:
    if not tallies:
        return []
    lines = [_SOAK]
    for name in dict.fromkeys(tally.proposer for tally in tallies):
        own = [tally for tally in tallies if tally.proposer == name]
        lines.append(_line([name, *(f"{figure:,}" for figure in _sums(own))]))
    return [*lines, _line(["**all**", *(f"**{figure:,}**" for figure in _sums(tallies))])]


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _sums(tallies: list[Tally]) -> list[int]:
    return [sum(column) for column in zip(*map(_figures, tallies), strict=True)]


def _figures(tally: Tally) -> tuple[int, ...]:
    return (
        tally.judged,
        tally.structure_only,
        tally.outputs,
        tally.aborted,
        int(tally.drafted),
        int(tally.accepted),
        tally.illegal_drafts,
        len(tally.wrong),
    )


if __name__ == "__main__":
    app()
