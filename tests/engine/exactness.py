"""One small constraint, sampled many times with one proposer: the outputs, their exact law, and what was proposed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tests.engine.engine_process import EngineProcess
from tests.oracles.languages import LANGUAGES
from tests.oracles.output_law import FiniteLanguage, Law, Output, Setting, Vocabulary, output_laws

PROMPT = "the planet after the report so the player slow so the"
"""Copies of what followed one of its words are partly legal."""
LANGUAGE = frozenset(
    [" planet" + word + end for word in (" after", " modern", " green", " next", " the") for end in ("", "!", " so")]
    + [" camera" + word for word in (" ", " bought", " replaced", " it", " the")]
    + [" player" + word for word in ("!", " so", " slow", " slow it", ".", ",")]
    + [" pop", " phone", " phone the", " report so early", " city on the"]
)
"""What the tiny model or one of its drafters finds likely after the prompt, and two outputs that a grammar forces. Of
the drafts some are legal and rejected all the same, and some are illegal; no output has nearly all of the probability.
"""
REGEX = "|".join(map(re.escape, sorted(LANGUAGE)))
MAX_TOKENS = 3
SETTINGS = {"T=1": Setting(1.0), "T=0.7, top-p 0.9": Setting(0.7, 0.9)}


GREEDY = [
    {
        "prompt": f"<|im_start|>user\n{kind}: {topic}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "structured": {language.field: language.value},
        "options": {"temperature": 0.0, "max_tokens": 40, "logprobs": 2},
    }
    for kind, language in LANGUAGES.items()
    for topic in ("a river", "north1, south2", '{"name": "Ada"}')
]
TIE = 0.125
"""Two tokens whose log-probabilities differ by less may change places: a step of eight positions rounds in other places
than eight steps of one, and a bfloat16 logit has 8 bits."""


@dataclass(frozen=True)
class Sample:
    """Outputs of one engine under one setting."""

    outputs: list[Output]
    drafted: int
    accepted: int
    illegal: int
    """Drafts that were the first illegal one of their step; vLLM itself does not count them."""


@dataclass(frozen=True)
class Greedy:
    """One greedy output, and by how much each token was better than the next best, in nats."""

    tokens: list[int]
    margins: list[float]

    def differs(self, other: Greedy) -> bool:
        """Whether the other output is not what a numerical tie explains."""
        pairs = enumerate(zip_longest(self.tokens, other.tokens))
        place = next((place for place, (one, two) in pairs if one != two), None)
        return place is not None and (place >= len(self.margins) or self.margins[place] > TIE)


class Subject:
    """An engine whose outputs are to be judged."""

    def __init__(self, model: Path, arguments: Mapping[str, Any], prepare: Callable[[], None] | None = None) -> None:
        """Start it. ``arguments`` are the engine's; ``prepare`` as in :class:`EngineProcess`."""
        self.vocabulary = Vocabulary(model)
        self._engine = EngineProcess(
            str(model),
            # The engine core in the engine's own process: nothing depends on the time at which a request arrives.
            environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            prepare=prepare,
            max_num_seqs=128,
            disable_log_stats=False,
            **arguments,
        )
        self._prompt = Tokenizer.from_file(str(model / "tokenizer.json")).encode(PROMPT).ids

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def sample(self, setting: Setting, count: int, seed: int) -> Sample:
        """Draw ``count`` outputs, each with a seed of its own."""
        drafted, accepted = self._counted()
        options = {"temperature": setting.temperature, "top_p": setting.top_p, "max_tokens": MAX_TOKENS}
        request = {
            "prompt": {"prompt_token_ids": self._prompt},
            "structured": {"regex": REGEX},
            "options": {**options, "n": count, "seed": seed},
        }
        ((*completions,),) = self._engine.generate([request])
        later_drafted, later_accepted = self._counted()
        records = [completion["constraint"] for completion in completions]
        return Sample(
            [tuple(completion["token_ids"]) for completion in completions],
            later_drafted - drafted,
            later_accepted - accepted,
            sum(record["illegal_drafts"] for record in records if isinstance(record, dict)),
        )

    def greedy(self) -> list[Greedy]:
        """Return the outputs of :data:`GREEDY`."""
        return [
            Greedy(completion["token_ids"], [_margin(row) for row in completion["logprobs"]])
            for (completion,) in self._engine.generate(GREEDY)
        ]

    def laws(self) -> list[Law]:
        """Return the law of the outputs for each of :data:`SETTINGS`, from this engine's own unconstrained logits."""
        language = FiniteLanguage(LANGUAGE, MAX_TOKENS)
        return output_laws(language, self.vocabulary, self._log_probabilities, list(SETTINGS.values()))

    def _log_probabilities(self, prefixes: Sequence[Output], wanted: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        requests = [
            {
                "prompt": {"prompt_token_ids": [*self._prompt, *prefix]},
                "options": {"max_tokens": 1, "logprob_token_ids": list(ids)},
            }
            for prefix, ids in zip(prefixes, wanted, strict=True)
        ]
        found = [completion["logprobs"][0] for (completion,) in self._engine.generate(requests)]
        return [{token: row[token] for token in ids} for row, ids in zip(found, wanted, strict=True)]

    def _counted(self) -> tuple[int, int]:
        names = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
        drafted, accepted = (self._engine.counter(name) for name in names)
        return drafted, accepted


def _margin(row: Mapping[int, float]) -> float:
    best, *others = sorted(row.values(), reverse=True)
    return best - others[0] if others else inf
