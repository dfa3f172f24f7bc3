"""Cost of the engine core's grammar work for each step with drafts: ours beside vLLM's own manager and backends.

    python benchmarks/lookahead.py TOKENIZER

Every request writes a text of its own, the same one with the same drafts under every manager. One step is what vLLM's
engine core does for one: ``validate_tokens`` on the drafts, ``grammar_bitmask`` for all rows, ``accept_tokens`` on what
was sampled. The text of a request is known beforehand: sampled are the drafts up to the first wrong one, and the right
token. A wrong draft is illegal; vLLM cuts it off in ``validate_tokens``, ours keeps it. Then a second batch with the
same schema and other texts follows. CPU time of one thread, with the heap frozen as the engine core freezes it.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from infernix_plugin.testing.tokenizer_folder import tokenizer_folder

SCHEMA = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 40},
        "last_name": {"type": "string"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer"}, "city": {"type": "string"}},
            "required": ["street", "number", "city"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 8},
        "score": {"type": "number"},
        "active": {"type": "boolean"},
    },
    "required": ["first_name", "last_name", "address", "tags", "score", "active"],
    "additionalProperties": False,
}

WORDS = ["Ada", "Augusta", "King", "Countess", "of", "Lovelace", "Grace", "Hopper", "Île-de-France", "Straße", "Nova"]


def instance(source: random.Random) -> str:
    """A random text of the schema."""

    def phrase(most: int) -> str:
        return " ".join(source.sample(WORDS, source.randint(1, most)))

    return json.dumps(
        {
            "first_name": phrase(3),
            "last_name": phrase(6),
            "address": {"street": phrase(4), "number": source.randrange(1000), "city": phrase(2)},
            "tags": source.choices(["red", "blue", "green"], k=source.randrange(5)),
            "score": round(source.uniform(-100, 100), 2),
            "active": source.random() < 0.5,
        },
        ensure_ascii=False,
    )


WRONG_DRAFT = "}}]\n"
"""Never legal in a text."""


@dataclass(frozen=True)
class Step:
    """One request's step: what was proposed, and what is sampled in the end."""

    drafts: list[int]
    sampled: list[int]


@dataclass(frozen=True)
class Plan:
    """The same work for every manager."""

    schema: str
    requests: int
    drafts: int
    steps: list[list[Step]]


def plan(texts: list[list[int]], wrong: int, drafts: int) -> Plan:
    """Cut the texts into steps; every other request's draft goes wrong somewhere."""
    source = random.Random(7)
    places, steps = [0] * len(texts), []
    while any(place < len(text) for place, text in zip(places, texts, strict=True)):
        step = []
        for request, (place, text) in enumerate(zip(places, texts, strict=True)):
            proposed = text[place : place + drafts]
            cut = source.randrange(len(proposed)) if proposed and source.random() < 0.5 else len(proposed)
            sampled = text[place : place + cut + 1]
            proposed = [wrong if position == cut else token for position, token in enumerate(proposed)]
            step.append(Step(proposed, sampled))
            places[request] = place + len(sampled)
        steps.append(step)
    return Plan(json.dumps(SCHEMA), len(texts), drafts, steps)


def request_of(grammar: Any, name: str) -> Any:
    """What a manager reads of a request."""
    structured = SimpleNamespace(grammar=grammar, reasoning_ended=None, reasoner=None)
    return SimpleNamespace(
        request_id=name, use_structured_output=True, structured_output_request=structured, prompt_token_ids=[]
    )


def config_of(vocab_size: int, job: Plan) -> Any:
    """What the managers and backends read of vLLM's configuration, at vLLM's defaults."""
    return SimpleNamespace(
        additional_config={},
        structured_outputs_config=SimpleNamespace(
            disable_any_whitespace=False, disable_additional_properties=False, enable_in_reasoning=False
        ),
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(model_type="qwen3"),
            is_diffusion=False,
            skip_tokenizer_init=True,  # grammars are handed over ready made
            get_vocab_size=lambda: vocab_size,
        ),
        parallel_config=SimpleNamespace(distributed_executor_backend=None, pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(max_num_seqs=job.requests, async_scheduling=False),
        speculative_config=SimpleNamespace(num_speculative_tokens=job.drafts),
        use_v2_model_runner=False,
        num_speculative_tokens=job.drafts,
    )


Batch = Callable[[], dict[str, Any]]
"""Makes new requests of one schema."""


def vllm_manager(backend_name: str, tokenizer: Any, vocab_size: int, job: Plan) -> tuple[Any, Batch]:
    """vLLM's manager on one of its backends, past its own start-up."""
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    manager = StructuredOutputManager(config_of(vocab_size, job))
    kind = XgrammarBackend if backend_name == "xgrammar" else GuidanceBackend
    manager.backend = kind(manager.vllm_config, tokenizer=tokenizer, vocab_size=vocab_size)
    stops = {tokenizer.eos_token_id}

    def batch() -> dict[str, Any]:
        names = [f"r{index}" for index in range(job.requests)]
        kind = StructuredOutputOptions.JSON
        compiled = {name: manager.backend.compile_grammar(kind, job.schema, stop_token_ids=stops) for name in names}
        return {name: request_of(grammar, name) for name, grammar in compiled.items()}

    return manager, batch


def our_manager(folder: Path, vocab_size: int, job: Plan) -> tuple[Any, Batch]:
    """This project's manager, past its own start-up."""
    from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
    from infernix_plugin.structured_output.constrained import ConstrainedRequest
    from infernix_plugin.structured_output.manager import InfernixManager

    compiler = ConstraintCompiler(TokenDomain.from_pretrained(folder, vocab_size=vocab_size))

    def batch() -> dict[str, Any]:
        prepared = compiler.prepare(OutputConstraint.json_schema(job.schema))
        names = [f"r{index}" for index in range(job.requests)]
        return {name: request_of(ConstrainedRequest(prepared, kind="json_schema"), name) for name in names}

    return InfernixManager(config_of(vocab_size, job)), batch


def run(manager: Any, requests: dict[str, Any], job: Plan) -> float:
    """Return the mean seconds of a step."""
    gc.collect()
    gc.freeze()
    started = thread_time()
    for step in job.steps:
        active = {name: work for name, work in zip(requests, step, strict=True) if work.sampled}
        drafts = {name: manager.validate_tokens(requests[name], work.drafts) for name, work in active.items()}
        manager.grammar_bitmask(requests, list(active), drafts)
        for name, work in active.items():
            if not manager.accept_tokens(requests[name], list(work.sampled)):
                raise SystemExit(f"{type(manager).__name__} refuses the text of {name}")
    spent = thread_time() - started
    gc.unfreeze()
    return spent / len(job.steps)


def main(
    tokenizer: Annotated[Path, typer.Argument(callback=tokenizer_folder, help="Folder that transformers can load.")],
    requests: int = 8,
    drafts: int = 3,
    repeats: Annotated[int, typer.Option(help="Runs of each manager, interleaved; the best one counts.")] = 5,
    vocab_size: int = 151_936,
) -> None:
    """Measure and print the table."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    source = random.Random(5)
    wrong = loaded(WRONG_DRAFT, add_special_tokens=False)["input_ids"][0]
    jobs = [
        plan([loaded(instance(source), add_special_tokens=False)["input_ids"] for _ in range(requests)], wrong, drafts)
        for _ in range(2)
    ]
    managers: dict[str, Callable[[], tuple[Any, Batch]]] = {
        "vLLM, xgrammar": lambda: vllm_manager("xgrammar", loaded, vocab_size, jobs[0]),
        "vLLM, guidance": lambda: vllm_manager("guidance", loaded, vocab_size, jobs[0]),
        "infernix-plugin": lambda: our_manager(tokenizer, vocab_size, jobs[0]),
    }
    best = {title: [float("inf")] * len(jobs) for title in managers}
    for _ in range(repeats):
        for title, make in managers.items():
            manager, batch = make()
            for number, job in enumerate(jobs):
                best[title][number] = min(best[title][number], run(manager, batch(), job))
    ours = best["infernix-plugin"]
    columns = "manager", "first batch, ms a step", "ours / theirs", "second batch", "ours / theirs"
    table = Table(*columns, title=f"{requests} requests, {drafts} drafts")
    for title, seconds in best.items():
        cells = ((f"{1e3 * theirs:.3f}", f"{mine / theirs:.2f}") for mine, theirs in zip(ours, seconds, strict=True))
        table.add_row(title, *(text for cell in cells for text in cell))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
