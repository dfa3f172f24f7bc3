"""Speculation under constraints, proposer by proposer: this project beside vLLM's own structured outputs, in one run.

    python benchmarks/speculation.py --out docs/benchmarks          # tiny checkpoints, built first
    python benchmarks/speculation.py --model DIR                    # a real model: n-grams and the grammar alone

Every case is an engine of its own, in a process of its own, one after another: runner V1 on a CPU, one thread. Each
constraint is answered by one batch of sampled requests, after two that warm the caches. Steps are counted per
request: a step is one that committed tokens to it. Mask time is what the engine core spends in ``validate_tokens``,
``grammar_bitmask`` and ``accept_tokens``. All times are CPU time of the whole process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import typer

OURS, THEIRS = "infernix-plugin", "vLLM"
PRODUCT = {
    "type": "object",
    "properties": {
        "product_name": {"enum": ["cup", "plate"]},
        "quantity": {"type": "integer", "maximum": 99, "minimum": 1},
    },
    "required": ["product_name", "quantity"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "customer_identifier": {"type": "integer", "minimum": 0, "maximum": 999},
        "delivery_city": {"enum": ["Lisbon", "London", "Berlin"]},
        "is_gift_wrapped": {"type": "boolean"},
        "first_product": PRODUCT,
        "second_product": PRODUCT,
    },
    "required": ["customer_identifier", "delivery_city", "is_gift_wrapped", "first_product", "second_product"],
    "additionalProperties": False,
}
LAYOUT = r"""
root ::= "{\"customer_identifier\": " number ", \"delivery_city\": \"" city "\", \"items\": [" item ", " item "]}"
city ::= "Lisbon" | "London" | "Berlin"
item ::= "{\"product_name\": \"" ("cup" | "plate") "\", \"quantity\": " number "}"
number ::= [1-9] [0-9]?
"""
ORDER = "Two cups and three plates go to customer 512 in Lisbon, no gift wrap. Write the order as JSON."


@dataclass(frozen=True)
class Constraint:
    """What is asked for, ``asked`` as in vLLM's ``StructuredOutputsParams``."""

    title: str
    asked: Mapping[str, Any]
    question: str
    max_tokens: int = 120


CONSTRAINTS = (
    Constraint("none", {}, "Tell me about the river.", 60),
    Constraint("JSON Schema", {"json": SCHEMA}, ORDER, 90),
    Constraint("JSON object", {"json_object": True}, ORDER, 60),
    Constraint("JSON by a grammar", {"grammar": LAYOUT}, ORDER),
    Constraint("regex", {"regex": r"(19|20)\d{2}-(0[1-9]|1[0-2])-[0-3]\d( and [a-z]{3,12}){1,3}"}, "When, and what?"),
    Constraint("choice", {"choice": ["positive", "negative", "neutral", "neither of them"]}, "Good or bad?"),
)


@dataclass(frozen=True)
class Case:
    """One engine."""

    proposer: str
    speculation: Mapping[str, Any] | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    engines: tuple[str, ...] = (OURS,)


def cases(drafts: int, drafters: Mapping[str, Path], *, has_mtp: bool) -> list[Case]:
    """Return the engines to run: those that vLLM runs as well, and what only this project does."""
    count = {"num_speculative_tokens": drafts}
    ngram = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5, **count}
    sampled = {"draft_sample_method": "probabilistic"}
    plain, grammar = {"grammar_drafts": False}, {"grammar_drafts": True}
    copies = {"ngram_copies": True, "ngram_min_match": 2}
    both = (OURS, THEIRS)
    found = [
        Case("no drafts", None, plain, both),
        Case("n-gram", ngram, plain, both),
        Case("n-gram copies", ngram, plain | copies),
        Case("n-gram + grammar", ngram, grammar),
    ]
    if has_mtp:
        mtp = {"method": "mtp", **count}
        found += [
            Case("MTP", mtp, plain, both),
            Case("MTP, sampled", mtp | sampled, plain, both),
            Case("MTP + grammar", mtp, grammar),
            Case("MTP, sampled, + copies + grammar", mtp | sampled, grammar | copies),
        ]
    for kind, folder in drafters.items():
        dflash = {"method": "dflash", "model": str(folder), **count}
        if kind == "dflash":
            found.append(Case("DFlash", dflash, plain, both))
        else:
            found += [Case("DFlash2", dflash | sampled, plain), Case("DFlash2 + grammar", dflash | sampled, grammar)]
    return found


@dataclass
class Figures:
    """What one batch of requests took."""

    tokens: int = 0
    steps: int = 0
    drafted: list[int] = field(default_factory=list)
    """How often a draft stood at each position."""
    accepted: list[int] = field(default_factory=list)
    seconds: float = 0.0
    mask_seconds: float = 0.0

    @property
    def tokens_per_step(self) -> float:
        """Committed tokens for each step of a request."""
        return self.tokens / self.steps

    @property
    def mask_share(self) -> float:
        """Mask time in percent of all."""
        return 100 * self.mask_seconds / self.seconds

    def acceptance(self) -> str:
        """Accepted drafts in percent, position by position."""
        return (
            " ".join(f"{100 * good / all_:.0f}" for good, all_ in zip(self.accepted, self.drafted, strict=True)) or "-"
        )


@dataclass(frozen=True)
class Row:
    """A line of the table; ``figures`` is missing where the engine failed, and ``failure`` says how."""

    engine: str
    proposer: str
    constraint: str
    figures: Figures | None
    failure: str = ""


class Meter:
    """Counts in an engine that runs in this process."""

    def __init__(self, engine: Any) -> None:
        scheduler = engine.llm_engine.engine_core.engine_core.scheduler
        manager = scheduler.structured_output_manager
        self.figures = Figures()
        for name in ("validate_tokens", "grammar_bitmask", "accept_tokens"):
            setattr(manager, name, self._timed(getattr(manager, name)))
        scheduler.update_from_output = self._counted(scheduler.update_from_output)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = process_time()
            result = method(*args, **kwargs)
            self.figures.mask_seconds += process_time() - started
            return result

        return timed

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(scheduler_output: Any, runner_output: Any) -> Any:
            drafts = scheduler_output.scheduled_spec_decode_tokens
            figures = self.figures
            for name, sampled in zip(runner_output.req_ids, runner_output.sampled_token_ids, strict=False):
                if sampled:
                    figures.steps += 1
                    for position in range(len(drafts.get(name, ()))):
                        while len(figures.drafted) <= position:
                            figures.drafted.append(0)
                            figures.accepted.append(0)
                        figures.drafted[position] += 1
                        figures.accepted[position] += position + 1 < len(sampled)
            outputs = method(scheduler_output, runner_output)
            figures.tokens += sum(len(one.new_token_ids) for part in outputs.values() for one in part.outputs)
            return outputs

        return counted


def answer(engine: Any, constraint: Constraint, requests: int, seed: int) -> None:
    """Run one batch."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    prompt = engine.get_tokenizer().apply_chat_template(
        [{"role": "user", "content": constraint.question}],
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=False,
    )
    options = [
        SamplingParams(
            temperature=1.0,
            top_p=0.95,
            seed=seed + number,
            max_tokens=constraint.max_tokens,
            structured_outputs=StructuredOutputsParams(**constraint.asked) if constraint.asked else None,
        )
        for number in range(requests)
    ]
    engine.generate([prompt] * requests, options, use_tqdm=False)


def serve(pipe: Any, model: Path, case: Case, whose: str, constraints: Sequence[int], requests: int) -> None:
    """Run one engine over constraints, in a process of its own; every result is sent at once."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",  # vLLM's n-gram matcher; its default becomes that of torch as well
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "INFERNIX_DISABLE": "1" if whose == THEIRS else "0",
    }
    from vllm import LLM

    try:
        engine = LLM(
            str(model),
            max_model_len=1024,
            max_num_seqs=requests,
            enforce_eager=True,
            enable_prefix_caching=False,
            speculative_config=None if case.speculation is None else dict(case.speculation),
            additional_config={"infernix": dict(case.settings)} if whose == OURS else {},
        )
        meter = Meter(engine)
        for number in constraints:
            answer(engine, CONSTRAINTS[number], min(2, requests), seed=1000)
            meter.figures = Figures()
            started = process_time()
            answer(engine, CONSTRAINTS[number], requests, seed=0)
            meter.figures.seconds = process_time() - started
            pipe.send(asdict(meter.figures))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0][:160])
    pipe.close()


def run(model: Path, case: Case, whose: str, requests: int) -> list[Row]:
    """Run one case; after a failure a new engine goes on with the next constraint."""
    context = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    while len(rows) < len(CONSTRAINTS):
        ours, theirs = context.Pipe(duplex=False)
        left = range(len(rows), len(CONSTRAINTS))
        process = context.Process(target=serve, args=(theirs, model, case, whose, left, requests))
        process.start()
        theirs.close()
        for number in left:
            try:
                result = ours.recv()
            except EOFError:
                result = "the process ended"
            title = CONSTRAINTS[number].title
            if isinstance(result, str):
                rows.append(Row(whose, case.proposer, title, None, result))
                break
            rows.append(Row(whose, case.proposer, title, Figures(**result)))
        process.join()
    return rows


def rows_of(lines: str) -> list[Row]:
    """Read raw lines."""
    found = [json.loads(line) for line in lines.splitlines()]
    return [Row(**{**row, "figures": row["figures"] and Figures(**row["figures"])}) for row in found]


def table(rows: Sequence[Row], constraint: str) -> str:
    """Return the Markdown table of one constraint."""
    lines = [
        "| proposer | engine | accepted by position, % | tokens a step | ms a token | mask ms a step | mask share |",
        "|:--|:--|:--|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row.constraint != constraint:
            continue
        start = f"| {row.proposer} | {row.engine} |"
        figures = row.figures
        if figures is None:
            lines.append(f"{start} fails: `{row.failure}` | | | | |")
            continue
        lines.append(
            f"{start} {figures.acceptance()} | {figures.tokens_per_step:.2f} | "
            f"{1000 * figures.seconds / figures.tokens:.2f} | {1000 * figures.mask_seconds / figures.steps:.3f} | "
            f"{figures.mask_share:.1f} % |"
        )
    return "\n".join(lines)


def gains(rows: Sequence[Row]) -> str:
    """Return what drafts of the grammar add to the same proposer: tokens a step, and time a token."""
    known = {(row.proposer, row.constraint): row.figures for row in rows if row.engine == OURS and row.figures}
    lines = ["| proposer | " + " | ".join(c.title for c in CONSTRAINTS) + " |", "|:--" * (len(CONSTRAINTS) + 1) + "|"]
    for proposer in dict.fromkeys(row.proposer for row in rows):
        cells = []
        for constraint in CONSTRAINTS:
            plain = known.get((proposer, constraint.title))
            grammar = known.get((f"{proposer} + grammar", constraint.title))
            if plain and grammar:
                steps = grammar.tokens_per_step / plain.tokens_per_step
                time = (grammar.seconds / grammar.tokens) / (plain.seconds / plain.tokens)
                cells.append(f"{steps:.2f} / {time:.2f}")
        if cells:
            lines.append(f"| {proposer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(rows: Sequence[Row], described: str) -> str:
    """Return the documentation page."""
    parts = "\n\n".join(f"## {c.title}\n\n{table(rows, c.title)}" for c in CONSTRAINTS)
    return f"""# Speculation

{described}
Engines one after another on one machine by `benchmarks/speculation.py`, runner V1 on a CPU, one thread, sampled at
temperature 1 with top-p 0.95. The machine was busy with other work, which CPU time feels as well: "none" in the next
table, where nothing differs, shows how far times can be trusted. Tokens a step are counts.
A token is one that was committed, a step one that committed tokens to a request. Mask time is the engine core's:
`validate_tokens`, `grammar_bitmask` and `accept_tokens`; drafts from the grammar are made there and count in.
"n-gram copies" and "+ copies" are the setting `ngram_copies`, "+ grammar" is `grammar_drafts`. Where only this project
stands, vLLM has nothing like it, or refuses it on this runner.

The outputs of two engines are samples of their own, and the whitespace and the length of JSON vary much between samples
of a tiny model: compare tokens a step within "JSON by a grammar", where the layout is fixed.

![Tokens a step, and mask time](speculation.svg)

## What the grammar's drafts add

Tokens a step, and CPU time a token, relative to the same proposer without them.

{gains(rows)}

{parts}
"""


def plot(rows: Sequence[Row], target: Path) -> None:
    """Draw tokens a step of this project's proposers, and mask time beside vLLM's."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "speculation"  # the same figures give the same file
    from matplotlib import pyplot

    titles = [constraint.title for constraint in CONSTRAINTS if constraint.asked]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for axis, label, engines, value in (
        (axes[0], "tokens a step", (OURS,), lambda f: f.tokens_per_step),
        (axes[1], "mask ms a step", (OURS, THEIRS), lambda f: 1000 * f.mask_seconds / f.steps),
    ):
        bars = Counter[tuple[str, str]]()
        for row in rows:
            if row.engine in engines and row.figures and row.constraint in titles:
                bars[row.proposer, row.engine] += 0
        names = list(bars)
        if engines != (OURS,):  # only what both have
            names = [name for name in names if (name[0], THEIRS) in bars]
        height = 0.8 / len(titles)
        for offset, title in enumerate(titles):
            found = {(row.proposer, row.engine): row.figures for row in rows if row.constraint == title and row.figures}
            places = [place for place, name in enumerate(names) if name in found]
            axis.barh(
                [place + offset * height for place in places],
                [value(found[names[place]]) for place in places],
                height,
                label=title,
            )
        axis.set_yticks(
            [place + 0.4 - height / 2 for place in range(len(names))],
            [proposer if engines == (OURS,) else f"{proposer}, {engine}" for proposer, engine in names],
        )
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(visible=True, axis="x", alpha=0.3)
    axes[1].legend(loc="lower right")
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def main(
    model: Annotated[Path | None, typer.Option(exists=True, help="A checkpoint; the tiny ones by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the plot; printed only, by default.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Raw lines; what is there already is not run again.")] = None,
    requests: int = 8,
    drafts: int = 3,
    only: Annotated[str, typer.Option(help="Only proposers whose title contains this.")] = "",
) -> None:
    """Measure, and write the report."""
    with tempfile.TemporaryDirectory() as scratch:
        drafters: dict[str, Path] = {}
        described = f"{requests} requests at a time, {drafts} drafts, the model `{model.name if model else ''}`."
        if model is None:
            from infernix_plugin.model_executor.tiny import make_tiny_draft, make_tiny_model

            model = Path(scratch) / "model"
            make_tiny_model(model)
            drafters = {kind: Path(scratch) / kind for kind in ("dflash", "dflash2")}
            for kind, folder in drafters.items():
                make_tiny_draft(folder, kind)
            described = f"{requests} requests at a time, {drafts} drafts, the tiny checkpoints of this project."
        rows = [] if results is None or not results.exists() else rows_of(results.read_text(encoding="utf-8"))
        done = {(row.proposer, row.engine) for row in rows}
        order = []
        for case in cases(drafts, drafters, has_mtp=bool(drafters)):
            for whose in case.engines:
                order.append((case.proposer, whose))
                if only not in case.proposer or order[-1] in done:
                    continue
                typer.echo(f"{case.proposer}, {whose} ...", err=True)
                rows += run(model, case, whose, requests)
                if results is not None:
                    results.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
        rows.sort(key=lambda row: order.index((row.proposer, row.engine)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "speculation.md").write_text(page(rows, described), encoding="utf-8")
        plot(rows, out / "speculation.svg")
    typer.echo(page(rows, described))


if __name__ == "__main__":
    typer.run(main)
