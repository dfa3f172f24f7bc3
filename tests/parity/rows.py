"""The table: one row for each mode of a family, with what it shows and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.parity.checkpoints import Checkpoint
from tests.parity.engine_series import ACCEPTED, DRAFTED, PREEMPTIONS
from tests.parity.judgement import Comparison, Judge, Verdict, compare
from tests.parity.modes import LENGTHS, PLAIN, Engine, Round, prompts_of

BLOCK = 640
"""The largest block, in tokens. Of longer prompts something comes from the cache; a drafter holds one block back."""
SEES_ALL = 4096
"""A budget of sparse attention that covers every prompt."""
REFUSALS = {
    (family, kind): "there are no drafts of method 'dflash'"
    for family in ("flash-next",)
    for kind in ("dflash", "dflash2")
}
"""What does not exist, by family and engine, and what has to be in the message."""


@dataclass(frozen=True)
class Row:
    """One mode. ``wrong``: what exceeds the bounds. ``refused``: what vLLM says where the mode does not exist."""

    mode: str
    verdict: Verdict | None = None
    beside_plain: Comparison | None = None
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    preempted: int = 0
    refused: str = ""
    wrong: tuple[str, ...] = ()


def rows_of(checkpoint: Checkpoint, engines: Sequence[Engine], results: Sequence[dict[str, Any]]) -> list[Row]:
    """Judge every round of the engines of one family, among them the plain one."""
    prompts = prompts_of(checkpoint.model)
    judge = Judge(checkpoint, prompts)
    answered = zip(engines, results, strict=True)
    outcomes = {
        part.mode: outcome
        for engine, result in answered
        for part, outcome in zip(engine.rounds, result.get("rounds", ()), strict="refused" not in result)
    }
    plain = judge.judge(outcomes[PLAIN])
    rows = []
    for engine, result in zip(engines, results, strict=True):
        for part in engine.rounds:
            if "refused" in result:
                rows.append(_refused(checkpoint, engine, part, result["refused"]))
            else:
                outcome = outcomes[part.mode]
                rows.append(_judged(engine, part, outcome, (judge.judge(outcome), plain)))
    if checkpoint.family == "flash-next":
        other = Judge(checkpoint, prompts, indexer_budget=SEES_ALL).judge(outcomes[PLAIN])
        wrong = () if other.complaints else ("a model that selects nothing says the same",)
        rows.append(Row("control: attention without selection", other, compare(plain, plain), wrong=wrong))
    return rows


def _refused(checkpoint: Checkpoint, engine: Engine, part: Round, message: str) -> Row:
    expected = REFUSALS.get((checkpoint.family, engine.name))
    wrong = () if expected is not None and expected in message else (f"refused: {message}",)
    return Row(part.mode, refused=message, wrong=wrong)


def _judged(engine: Engine, part: Round, outcome: dict[str, Any], verdicts: tuple[Verdict, Verdict]) -> Row:
    """``verdicts``: of this round and of the plain one."""
    found = Row(
        part.mode,
        verdicts[0],
        compare(*verdicts),
        drafted=outcome["counters"][DRAFTED],
        accepted=outcome["counters"][ACCEPTED],
        cached=sum(outcome["cached"]),
        preempted=outcome["counters"][PREEMPTIONS],
    )
    return Row(**{**vars(found), "wrong": tuple(complaints(engine, part, outcome, found))})


def complaints(engine: Engine, part: Round, outcome: dict[str, Any], row: Row) -> Iterator[str]:
    """Yield what is wrong with a round, whose figures stand in ``row``."""
    assert row.verdict is not None
    assert row.beside_plain is not None
    if part.broken:
        if not row.verdict.complaints and not row.beside_plain.wrong:
            yield "the fault is not noticed"
        return
    yield from row.verdict.complaints
    if row.beside_plain.wrong:
        yield f"{row.beside_plain.wrong} requests part from the plain engine where nothing ties"
    if engine.drafting and not row.drafted:
        yield "nothing was drafted"
    if part.oracle and not 0.4 * row.drafted < row.accepted < 0.9 * row.drafted:
        yield f"{row.accepted} of {row.drafted} drafts of an oracle were accepted"
    if part.preempted and row.preempted < len(LENGTHS):
        yield f"{row.preempted} preemptions"
    if part.warm:
        needed = BLOCK * (2 if engine.drafting else 1)
        if not all(count for count, length in zip(outcome["cached"], LENGTHS, strict=True) if length > needed):
            yield f"from the cache came {outcome['cached']}"
    elif row.cached and not part.preempted:
        yield f"{row.cached} tokens came from an empty cache"
