"""Cost of the engine core's grammar work for each step with drafts: ours beside vLLM's own manager and backends.

    python benchmarks/lookahead.py TOKENIZER

The same requests write the same text with the same drafts under every manager. One step is what vLLM's engine core does
for one: ``validate_tokens`` on the drafts, ``grammar_bitmask`` for all rows, ``accept_tokens`` on what was sampled. The
text of a request is known beforehand: sampled are the drafts up to the first wrong one, and the right token.
A wrong draft is illegal; vLLM cuts it off in ``validate_tokens``, ours keeps it. CPU time of one thread.
"""

from __future__ import annotations

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

INSTANCE = {
    "first_name": "Ada Augusta",
    "last_name": "King, Countess of Lovelace",
    "address": {"street": "St James's Square", "number": 12, "city": "London"},
    "tags": ["red", "blue", "green"],
    "score": 98.25,
    "active": True,
}

WRONG_DRAFT = "}}]\n"
"""Never legal inside the instance."""


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


def plan(tokens: list[int], wrong: int, requests: int, drafts: int) -> Plan:
    """Cut the text into steps; every other request's draft goes wrong somewhere."""
    source = random.Random(7)
    places, steps = [0] * requests, []
    while min(places) < len(tokens):
        step = []
        for request, place in enumerate(places):
            proposed = tokens[place : place + drafts]
            cut = source.randrange(len(proposed)) if proposed and source.random() < 0.5 else len(proposed)
            sampled = tokens[place : place + cut + 1]
            proposed = [wrong if position == cut else token for position, token in enumerate(proposed)]
            step.append(Step(proposed, sampled))
            places[request] = place + len(sampled)
        steps.append(step)
    return Plan(json.dumps(SCHEMA), requests, drafts, steps)


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


def vllm_manager(backend_name: str, tokenizer: Any, vocab_size: int, job: Plan) -> tuple[Any, dict[str, Any]]:
    """vLLM's manager on one of its backends, past its own start-up."""
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    manager = StructuredOutputManager(config_of(vocab_size, job))
    kind = XgrammarBackend if backend_name == "xgrammar" else GuidanceBackend
    manager.backend = kind(manager.vllm_config, tokenizer=tokenizer, vocab_size=vocab_size)
    stops = {tokenizer.eos_token_id}
    names = [f"r{index}" for index in range(job.requests)]
    compiled = {
        name: manager.backend.compile_grammar(StructuredOutputOptions.JSON, job.schema, stop_token_ids=stops)
        for name in names
    }
    return manager, {name: request_of(grammar, name) for name, grammar in compiled.items()}


def our_manager(folder: Path, vocab_size: int, job: Plan) -> tuple[Any, dict[str, Any]]:
    """This project's manager, past its own start-up."""
    from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
    from infernix_plugin.structured_output.constrained import ConstrainedRequest
    from infernix_plugin.structured_output.manager import InfernixManager

    compiler = ConstraintCompiler(TokenDomain.from_pretrained(folder, vocab_size=vocab_size))
    prepared = compiler.prepare(OutputConstraint.json_schema(job.schema))
    names = [f"r{index}" for index in range(job.requests)]
    requests = {name: request_of(ConstrainedRequest(prepared, kind="json_schema"), name) for name in names}
    return InfernixManager(config_of(vocab_size, job)), requests


def run(manager: Any, requests: dict[str, Any], job: Plan) -> list[float]:
    """Return the seconds of every step."""
    spent = []
    for step in job.steps:
        active = {name: work for name, work in zip(requests, step, strict=True) if work.sampled}
        started = thread_time()
        drafts = {name: manager.validate_tokens(requests[name], work.drafts) for name, work in active.items()}
        manager.grammar_bitmask(requests, list(active), drafts)
        for name, work in active.items():
            if not manager.accept_tokens(requests[name], list(work.sampled)):
                raise SystemExit(f"{type(manager).__name__} refuses the text of {name}")
        spent.append(thread_time() - started)
    return spent


def main(
    tokenizer: Annotated[Path, typer.Argument(exists=True, help="Folder that transformers can load.")],
    requests: int = 8,
    drafts: int = 3,
    repeats: Annotated[int, typer.Option(help="Runs of each manager, interleaved; the best one counts.")] = 5,
    vocab_size: int = 151_936,
) -> None:
    """Measure and print the table."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    tokens = loaded(json.dumps(INSTANCE), add_special_tokens=False)["input_ids"]
    wrong = loaded(WRONG_DRAFT, add_special_tokens=False)["input_ids"][0]
    job = plan(tokens, wrong, requests, drafts)
    managers: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
        "vLLM, xgrammar": lambda: vllm_manager("xgrammar", loaded, vocab_size, job),
        "vLLM, guidance": lambda: vllm_manager("guidance", loaded, vocab_size, job),
        "infernix-plugin": lambda: our_manager(tokenizer, vocab_size, job),
    }
    best = dict.fromkeys(managers, float("inf"))
    for _ in range(repeats):
        for title, make in managers.items():
            spent = run(*make(), job)
            best[title] = min(best[title], sum(spent) / len(spent))
    ours = best["infernix-plugin"]
    table = Table("manager", "ms a step", "us a row", "ours / theirs", title=f"{requests} requests, {drafts} drafts")
    for title, seconds in best.items():
        per_row = seconds / (requests * (drafts + 1))
        table.add_row(title, f"{1e3 * seconds:.3f}", f"{1e6 * per_row:.1f}", f"{ours / seconds:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
