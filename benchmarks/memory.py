"""What takes memory in a process that compiles, and how much: by vocabulary, compiled grammar and request.

    python -m benchmarks.memory TOKENIZER [--vocab-size N]

Each figure is the growth of the process's resident memory while many of a kind are made and kept, divided by their
number; "counted" is what the cache is charged for. One process of its own for each line.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from infernix_plugin import ConstraintCompiler, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.matching.warming import warm
from infernix_plugin.seams.cpu_faults import install_import_repairs
from infernix_plugin.testing.tokenizer_folder import tokenizer_folder

GRAMMARS = 200
REQUESTS = 500
TOKENS = 50


def small(number: int) -> OutputConstraint:
    """A schema of four members, of which none is like another's."""
    names = {f"{name}{number}": kind for name, kind in (("name", "string"), ("age", "integer"), ("ok", "boolean"))}
    return OutputConstraint.json_schema(
        json.dumps({"type": "object", "properties": {n: {"type": t} for n, t in names.items()}, "required": [*names]})
    )


def large(number: int) -> OutputConstraint:
    """A schema of 100 members, with an enum in each."""
    properties = {f"p{number}_{i}": {"enum": [f"value {i} {j}" for j in range(20)]} for i in range(100)}
    return OutputConstraint.json_schema(json.dumps({"type": "object", "properties": properties}))


def nested(number: int) -> OutputConstraint:
    """A grammar that is not regular."""
    return OutputConstraint.grammar(f'root ::= "(" root ")" | [a-z]+ "{number}"')


def resident() -> int:
    """Resident memory of the process, bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def vocabulary(domain: TokenDomain) -> dict[str, Any]:
    """The index of a vocabulary, once for both engines."""
    before = resident()
    warm(ConstraintCompiler(domain))
    return {"bytes": resident() - before}


def grammars(domain: TokenDomain, make: Callable[[int], OutputConstraint]) -> dict[str, Any]:
    """Compiled grammars, every one different."""
    compiler = ConstraintCompiler(domain, cache_bytes=0)
    warm(compiler)
    compiler.compile(make(-1))
    before = resident()
    kept = [compiler.compile(make(number)) for number in range(GRAMMARS)]
    return {"bytes": (resident() - before) // len(kept), "counted": sum(c.memory_bytes for c in kept) // len(kept)}


def requests(domain: TokenDomain, make: Callable[[int], OutputConstraint]) -> dict[str, Any]:
    """Requests that have each written some tokens under one grammar."""
    compiled = ConstraintCompiler(domain).compile(make(0))
    row = np.zeros(domain.mask_words, dtype=np.int32)

    def session(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        session = compiled.session()
        for _ in range(TOKENS):
            if session.fill_mask(row) is not MaskState.READY or session.terminated:
                break
            session.accept(int(rng.choice(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")))))
        return session

    session(0)
    before = resident()
    kept = [session(seed) for seed in range(1, REQUESTS + 1)]
    return {"bytes": (resident() - before) // len(kept)}


def measure(tokenizer: str, vocab_size: int | None, name: str, pipe: Any) -> None:
    """Send one line's figures through ``pipe``."""
    install_import_repairs()
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    before = resident()
    domain = TokenDomain.from_pretrained(loaded, vocab_size=vocab_size or len(loaded))
    read = resident() - before
    match name.split(", "):
        case ["vocabulary"]:
            result = {"bytes": read, "index": vocabulary(domain)["bytes"], "row": 4 * domain.mask_words}
        case ["compiled", kind]:
            result = grammars(domain, KINDS[kind])
        case [_, kind]:
            result = requests(domain, KINDS[kind])
    pipe.send(result)


KINDS = {"4 members": small, "100 members": large, "nested grammar": nested}
LINES = ["vocabulary", *(f"{what}, {kind}" for what in ("compiled", "request") for kind in KINDS)]


def main(
    tokenizer: Annotated[Path, typer.Argument(callback=tokenizer_folder, help="Folder that transformers can load.")],
    vocab_size: Annotated[int | None, typer.Option(help="Width of the model's logits.")] = None,
) -> None:
    """Measure and print the table."""
    context = multiprocessing.get_context("spawn")
    print("| what | KiB | counted KiB |\n|:--|--:|--:|")
    for name in LINES:
        ours, theirs = context.Pipe()
        process = context.Process(target=measure, args=(str(tokenizer), vocab_size, name, theirs))
        process.start()
        theirs.close()
        result = ours.recv()
        process.join()
        for key in ("bytes", "index", "row"):
            if key in result:
                title = name if key == "bytes" else {"index": "its index", "row": "one mask row"}[key]
                counted = f"{result['counted'] / 1024:.1f}" if "counted" in result else ""
                print(f"| {title} | {result[key] / 1024:.1f} | {counted} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
