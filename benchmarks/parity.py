"""Is what the engine says what transformers says: every model family in every mode, on tiny checkpoints.

    python -m benchmarks.parity [--page docs/benchmarks/parity.md] [--family qwen3.5 ...] [--keep DIRECTORY]

Every family runs in one process, engine after engine, greedily. Each output is judged by transformers in float32, given
the engine's own text, and beside the output of the plain engine, token for token. The exit code is 1 if a row exceeds
the bounds, or if a negative control stays within them. With ``--keep``, checkpoints and outputs stay in a directory,
and a family whose outputs are there is only judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infernix_plugin.seams.cpu_faults import install_import_repairs
from tests.parity.checkpoints import FAMILIES, QUIET, make_checkpoint
from tests.parity.engine_series import CORRUPTED, run_series
from tests.parity.judgement import BEST, MEAN
from tests.parity.modes import CHUNK, LENGTHS, STEP, TIGHT, TOKENS, engines_of
from tests.parity.rows import Row, rows_of

Table = dict[str, list[Row]]

INTRODUCTION = f"""\
# Parity of the models

Every family in every mode of vLLM's CPU engine with the plugin, on the tiny checkpoints of `infernix make-tiny-model`,
in bfloat16. {len(LENGTHS)} greedy requests at once, prompts of {", ".join(map(str, LENGTHS))} tokens, {TOKENS} tokens
each. Transformers judges in float32, given the engine's own text:

- **equal**: tokens that are transformers' own choice; **ties**: those that are not, and whose logits are within a bound
  of the best one, in float32, in transformers' own bfloat16, or in float32 if an expert of the token is exchanged for
  one that bfloat16 cannot tell from it. At least {BEST:.0%} must be equal and the others tied.
- **gap**: how far a token's logit is below the best one at most; **mean**: the mean absolute difference of the tokens'
  log-probabilities, at most {MEAN}.
- **as plain**: tokens that are those of the batch without cache and speculation, up to where a request takes another
  way, and how many requests do so at a tie. Elsewhere none may.
- **accepted**: how many drafts were accepted, of how many; **cached**: tokens of prompts that came from the prefix
  cache; **preempted**: how often a request lost its blocks and began again.

Recurrent states are kept at borders of blocks, of 512 tokens (Flash-Next) or 640; the answers cross some. With the
cache, a step has {STEP} tokens at most, with DFlash {TIGHT}; "chunked" prompts come {CHUNK} tokens a step, while other
rows decode. Oracle drafts know the answer, and {CORRUPTED:.0%} of them are replaced by other tokens. A control brings
in a fault, and has to exceed the bounds. The output heads of the families with experts are divided by {QUIET}: where
two experts tie, bfloat16 takes the other one, and transformers' own bfloat16 is then as far from float32 as the engine.
"""

HEADINGS = ("mode", "equal", "ties", "gap", "mean", "as plain", "accepted", "cached", "preempted")


def run(families: Sequence[str], folder: Path) -> Table:
    """Run and judge families; what lies in ``folder`` is not run again."""
    table: Table = {}
    for family in families:
        place = folder / family.replace(", ", "-").replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        checkpoint = make_checkpoint(family, place)
        engines = engines_of(checkpoint)
        kept = place / "results.json"
        if not kept.exists():
            kept.write_text(json.dumps(run_series([(checkpoint, engine) for engine in engines], place)))
        table[family] = rows_of(checkpoint, engines, json.loads(kept.read_text()))
        for row in table[family]:
            print(f"{family}: {' | '.join(cells(row))}", *row.wrong, sep="\n    wrong: ", flush=True)
    return table


def cells(row: Row) -> list[str]:
    """Return the cells of a row, none of them empty."""
    if row.verdict is None or row.beside_plain is None:
        return [row.mode, "refused", *["-"] * (len(HEADINGS) - 2)]
    verdict, beside = row.verdict, row.beside_plain
    parted = f", {beside.parted + beside.wrong} part" if beside.parted + beside.wrong else ""
    return [
        row.mode,
        f"{verdict.equal} of {verdict.tokens}",
        str(verdict.ties),
        f"{verdict.worst_gap:.3f}",
        f"{verdict.mean_difference:.4f}",
        f"{beside.equal}{parted}",
        f"{row.accepted} of {row.drafted}" if row.drafted else "no drafts",
        str(row.cached),
        str(row.preempted),
    ]


def page(table: Table) -> str:
    """Return the table as a page."""
    lines = [INTRODUCTION]
    for family, rows in table.items():
        bounds = next(row.verdict.bounds for row in rows if row.verdict)
        bound = f"Ties are within {bounds.tie:.3g}; no log-probability may differ by {bounds.far:g}."
        lines += [f"## {family}", "", bound, "", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
        lines += [f"| {' | '.join(cells(row))} |" for row in rows]
        for message in dict.fromkeys(row.refused for row in rows if row.refused):
            modes = " and ".join(row.mode for row in rows if row.refused == message)
            lines += ["", f'{modes}: refused at the start with "{message}".']
        wrong = [f"- {row.mode}: {text}" for row in rows for text in row.wrong]
        lines += ["", *(["**Outside the bounds:**", "", *wrong] if wrong else ["All rows are within the bounds."]), ""]
    families = "" if list(table) == list(FAMILIES) else " --family " + " ".join(f"'{family}'" for family in table)
    return "\n".join(
        [*lines, f"`python -m benchmarks.parity --page docs/benchmarks/parity.md{families}` wrote this page.", ""]
    )


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--page", type=Path, help="write the table here")
    parser.add_argument("--keep", type=Path, help="where checkpoints and outputs stay")
    options = parser.parse_args()
    install_import_repairs()  # before transformers is imported
    with tempfile.TemporaryDirectory() as scratch:
        table = run(options.family, options.keep or Path(scratch))
    text = page(table)
    if options.page:
        options.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    if any(row.wrong for rows in table.values() for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
