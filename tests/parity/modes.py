"""What the engine is asked to do, mode by mode: the engines of a family and their rounds.

A round is one generation of all prompts. Rounds of one engine follow each other; its cache is emptied before each but
those that say ``warm``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infernix_plugin.model_executor.tiny import corpus
from tests.parity.checkpoints import Checkpoint

TOKENS = 60
LENGTHS = (1276, 1532, 636, 508, 40)
"""Of the prompts. A block of the cache has 512 (Flash-Next) or 640 tokens, so that a recurrent state fits. All but the
last are as long as a block or several, less four tokens, of one or the other: the answers cross these borders."""

DRAFTS = 3
CHUNK = 64
"""Tokens of a step where prompts come in chunks, beside rows that decode."""
STEP = 1024
"""Tokens of a step with the cache. vLLM cuts prompts at borders of blocks then, so a block has to fit beside others."""
TIGHT = 640
"""The same for DFlash: exactly a block, which does not fit beside the slots that such a drafter reads."""


@dataclass(frozen=True)
class Round:
    """One generation of all prompts.

    ``alone``: one request after the other, not a batch. ``chunk``: tokens of a step, where not the engine's.
    ``warm``: the cache keeps what earlier rounds left. ``oracle``: how many drafts a row has that knows the answer, a
    quarter of them replaced, see ``engine_series.COUNTS``. ``preempted``: all requests lose their blocks, and the cache
    its content, several times. ``broken``: the fault that a negative control brings in, see ``engine_series.FAULTS``;
    the engine stays broken.
    """

    mode: str
    alone: bool = False
    chunk: int | None = None
    warm: bool = False
    oracle: str | None = None
    preempted: bool = False
    broken: str | None = None


@dataclass(frozen=True)
class Engine:
    """One engine, compiled only if its options say so.

    ``processes``: with the engine core in a process of its own, reached by ``generate`` only.
    """

    name: str
    options: Mapping[str, Any]
    rounds: tuple[Round, ...]
    processes: bool = False
    drafting: bool = field(default=False)


WHOLE = {"enable_prefix_caching": False, "max_num_batched_tokens": 2048}
CACHED = {"enable_prefix_caching": True, "max_num_batched_tokens": STEP}
COPIES = {"infernix": {"ngram_copies": True, "ngram_min_match": 2}}

PLAIN = "batched"
"""The round with which all others are compared token for token."""


def engines_of(checkpoint: Checkpoint) -> list[Engine]:
    """Return every engine of a family. One with n-grams comes last: it imports numba, beside which none starts."""

    def drafting(name: str, method: Mapping[str, Any], *rounds: Round, drafts: int = DRAFTS, **options: Any) -> Engine:
        speculation = {"num_speculative_tokens": drafts, **method}
        return Engine(name, CACHED | {"speculative_config": speculation} | options, rounds, drafting=True)

    def cold_and_cached(mode: str) -> tuple[Round, Round]:
        return Round(mode), Round(f"{mode}, from the cache", warm=True)

    mtp = {"method": "mtp"}
    found = [
        Engine("processes", CACHED, (Round("engine in a process of its own"),), processes=True),
        Engine("plain", WHOLE, (Round(PLAIN), Round("plain", alone=True), Round("chunked", chunk=CHUNK))),
        Engine(
            "cached",
            CACHED,
            (*cold_and_cached("caching"), Round("preempted", preempted=True)),
        ),
        drafting("mtp-1", mtp, *cold_and_cached("MTP, k = 1"), drafts=1),
        drafting(
            "mtp",
            mtp,
            *cold_and_cached("MTP, k = 3"),
            Round("MTP, k = 3, preempted", preempted=True),
            Round("control: states not copied at borders of blocks", broken="borders"),
        ),
        drafting("compiled", mtp, *cold_and_cached("compiled, MTP, k = 3"), enforce_eager=False),
        drafting("copies", mtp, *cold_and_cached("MTP with n-gram copies per row"), additional_config=COPIES),
    ]
    for kind, draft in checkpoint.drafts.items():
        title = {"dflash": "DFlash", "dflash2": "DFlash2"}[kind]
        method = {"method": "dflash", "model": str(draft)}
        found.append(drafting(kind, method, *cold_and_cached(title), max_num_batched_tokens=TIGHT))
    ngram = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 2}
    found.append(
        drafting(
            "ngram",
            ngram,
            *cold_and_cached("n-gram"),
            Round("oracle drafts, three a row", oracle="full"),
            Round("oracle drafts, one a row", oracle="short", warm=True),
            Round("oracle drafts, none to three a row", oracle="ragged"),
            Round("oracle drafts, none to three, preempted", oracle="ragged", preempted=True),
            Round("control: states not rolled back", oracle="full", broken="rollback"),
        )
    )
    return found


def prompts_of(model: Path) -> list[list[int]]:
    """Return the prompts, token ids of the corpus behind the tiny models; no two begin alike."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = tokenizer.encode("\n".join(list(corpus.documents())[:120])).ids
    starts = [3 + sum(LENGTHS[:index]) for index in range(len(LENGTHS))]
    return [text[start : start + length] for start, length in zip(starts, LENGTHS, strict=True)]
