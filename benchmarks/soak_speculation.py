"""Soak: constrained requests of many kinds with every proposer, and every output judged by an independent oracle.

    python -m benchmarks.soak_speculation MODEL --tokens 1000000 --report soak.json

MODEL is a checkpoint made by `infernix make-tiny-model`. Requests with different constraints, temperatures and options,
some with several outputs, some without a constraint, share each batch; some are aborted on the way. The proposers take
turns. A token counts as judged if its output is shown to be right with it:

- the token ids of an output, decoded here, are its text: no control token hides in it, and a stop token ends it;
- the text of an output that ended is in the language. Then so was each of its tokens when it was chosen;
- the text of an output that was cut begins something in the language; for JSON only the structure of that beginning is
  judged, and such tokens are counted apart.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from tests.engine.engine_process import ENVIRONMENT, SMALL
from tests.engine.proposers import NONE, PROPOSERS, engine_arguments
from tests.oracles.byte_level import ByteLevel
from tests.oracles.soak_languages import SOAK_LANGUAGES, SoakLanguage

IN_FLIGHT = 96
MAX_TOKENS = 300
PROMPT = "<|im_start|>user\nWrite {}: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@dataclass
class Tally:
    """What one proposer did. Tokens are committed ones of constrained requests."""

    proposer: str
    judged: int = 0
    structure_only: int = 0
    outputs: int = 0
    aborted: int = 0
    drafted: int = 0
    accepted: int = 0
    illegal_drafts: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Asked:
    """A request in flight."""

    language: SoakLanguage | None
    abort_after: int | None
    latest: dict[int, Any] = field(default_factory=dict)
    """vLLM's ``CompletionOutput`` by index."""


class Soak:
    """One engine under load. Runs in a process of its own."""

    def __init__(self, model: Path, proposer: str, seed: int) -> None:
        from vllm import LLM

        arguments = {**SMALL, "disable_log_stats": False, "max_num_seqs": IN_FLIGHT}
        self._llm = LLM(str(model), **arguments, **engine_arguments(proposer, model.parent))
        self._engine = self._llm.llm_engine
        self._source = random.Random(f"{proposer} {seed}")
        self._bytes = ByteLevel(model)
        self._asked: dict[str, Asked] = {}
        self._number = 0
        self.tally = Tally(proposer)

    def run(self, tokens: int) -> Tally:
        """Go on until ``tokens`` tokens are judged."""
        started = perf_counter()
        while self.tally.judged < tokens and not self.tally.wrong:
            while len(self._asked) < IN_FLIGHT:
                self._ask()
            for output in self._engine.step():
                self._look_at(output)
        self._judge_unfinished()
        self.tally.seconds = perf_counter() - started
        for metric in self._llm.get_metrics():
            if metric.name == "vllm:spec_decode_num_draft_tokens":
                self.tally.drafted += metric.value
            if metric.name == "vllm:spec_decode_num_accepted_tokens":
                self.tally.accepted += metric.value
        self._engine.engine_core.shutdown()
        return self.tally

    def _ask(self) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        source = self._source
        options: dict[str, Any] = {
            "n": source.choice((1, 1, 1, 2, 4)),
            "temperature": source.choice((0.0, 0.7, 1.0, 1.0, 1.5)),
            "top_p": source.choice((1.0, 0.9)),
            "top_k": source.choice((0, 0, 20)),
            "max_tokens": MAX_TOKENS,
        }
        if options["temperature"] == 0.0:
            options["n"] = 1
        if source.random() < 0.5:
            options["seed"] = source.randrange(1 << 31)
        if source.random() < 0.2:
            options |= {"repetition_penalty": 1.2, "presence_penalty": 0.3}
        language = source.choice(SOAK_LANGUAGES) if source.random() < 0.95 else None
        if language is None:
            options["max_tokens"] = 40
        else:
            options["structured_outputs"] = StructuredOutputsParams(**{language.field: language.value})
        asked = Asked(language, source.randrange(1, 40) if source.random() < 0.03 else None)
        # Only those that may be aborted are looked at on the way.
        options["output_kind"] = (
            RequestOutputKind.FINAL_ONLY if asked.abort_after is None else RequestOutputKind.CUMULATIVE
        )
        name = str(self._number)
        self._number += 1
        about = "something" if language is None else language.name
        prompt = PROMPT.format(about, source.choice(('{"name": "Ada"}', "2024-01-01", "north1, south2", "a river")))
        self._asked[name] = asked
        self._engine.add_request(name, prompt, SamplingParams(**options))

    def _look_at(self, output: Any) -> None:
        asked = self._asked.get(output.request_id)
        if asked is None:  # another output of a request that was aborted in this step
            return
        asked.latest |= {completion.index: _as_it_is_now(completion) for completion in output.outputs}
        longest = max(len(completion.token_ids) for completion in asked.latest.values())
        abort = asked.abort_after is not None and longest >= asked.abort_after and not output.finished
        if not (output.finished or abort):
            return
        if abort:
            self._engine.abort_request([output.request_id])
            self.tally.aborted += 1
        del self._asked[output.request_id]
        if asked.language is not None:
            for completion in asked.latest.values():
                self._judge(asked.language, completion)

    def _judge_unfinished(self) -> None:
        """Judge what is in flight as if it had been cut here, and ended outputs whose request has others in flight."""
        parents = {}
        for state in self._engine.output_processor.request_states.values():
            parent = state.parent_req
            name = (parent or state).external_req_id
            language = self._asked[name].language
            if language is None:
                continue
            self._judge(language, SimpleNamespace(token_ids=state.detokenizer.output_token_ids, finish_reason=None))
            if parent is not None:
                parents[name] = language, parent
        for language, parent in parents.values():
            for completion in filter(None, parent.output_aggregator):
                self._judge(language, completion)

    def _judge(self, language: SoakLanguage, completion: Any) -> None:
        tally, ids = self.tally, list(completion.token_ids)
        ended = completion.finish_reason == "stop"
        tally.outputs += 1
        if completion.finish_reason is not None:
            tally.illegal_drafts += completion.constraint["illegal_drafts"]
        written = self._bytes.decode(ids[:-1] if ended else ids)
        if written is None or (ended and ids[-1] not in self._bytes.stops):
            self._wrong(language, completion, "a token that is no text")
            return
        text = written.decode("utf-8", errors="strict" if ended else "ignore")
        if not (language.member(text) if ended else language.prefix(text)):
            self._wrong(language, completion, "not in the language")
        elif ended or language.exact_prefix:
            tally.judged += len(ids)
        else:
            tally.structure_only += len(ids)

    def _wrong(self, language: SoakLanguage, completion: Any, why: str) -> None:
        self.tally.wrong.append(f"{language.name}: {why}: {completion.finish_reason} {completion.token_ids}")


def _as_it_is_now(completion: Any) -> Any:
    """Copy an output: vLLM goes on appending to the token ids of one that it handed out before its end."""
    copied = copy(completion)
    copied.token_ids = list(completion.token_ids)
    return copied


def _serve(pipe: Any, model: Path, proposer: str, tokens: int, seed: int) -> None:
    pipe.send(Soak(model, proposer, seed).run(tokens))


def soak(model: Path, proposer: str, tokens: int, seed: int) -> Tally:
    """Run one proposer in a process of its own."""
    os.environ.update({**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, model, proposer, tokens, seed))
    process.start()
    theirs.close()
    tally: Tally = ours.recv()
    process.join()
    return tally


def main(
    model: Annotated[Path, typer.Argument(help="A tiny checkpoint; drafts are made beside it.")],
    tokens: Annotated[int, typer.Option(help="Judged tokens of all proposers together.")] = 1_000_000,
    only: Annotated[str, typer.Option(help="Only proposers whose name contains this.")] = "",
    seed: Annotated[int, typer.Option()] = 0,
    report: Annotated[Path | None, typer.Option(help="Tallies are appended here, one JSON line each.")] = None,
) -> None:
    """Exit with 1 if anything was wrong."""
    proposers = [name for name in (NONE, *PROPOSERS) if only in name]
    total = 0
    for proposer in proposers:
        tally = soak(model, proposer, tokens // len(proposers), seed)
        total += tally.judged
        print(f"{proposer:44} {tally.judged:9,} tokens judged, {tally.judged / tally.seconds:5.0f}/s, {tally.wrong}")
        if report is not None:
            with report.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(tally)) + "\n")
        if tally.wrong:
            raise typer.Exit(1)
    print(f"{total:,} tokens, none illegal")


if __name__ == "__main__":
    typer.run(main)
