"""The verdicts on the suite as text: the expected-results file, and the page of the documentation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.json_schema_suite.judge import Verdict

EXPECTED = Path(__file__).parent / "expected.txt"
PAGE = Path(__file__).parents[2] / "docs" / "json-schema-suite.md"
PARTS = REQUIRED, OPTIONAL, FORMATS = "required", "optional", "optional formats"
HEADER = """\
# What becomes of the JSON Schema Test Suite. Written by scripts/json_schema_suite.py; a test compares it.
# Per file: the index of a group, its outcome, and its description; below it the cases that are exceptions.
"""
INTRODUCTION = """\
# JSON Schema Test Suite

This page is written by `scripts/json_schema_suite.py` from what the code does; a test compares the two.

The [JSON Schema Test Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite) (MIT licence, commit `44401e0c`)
is vendored under `tests/json_schema_suite/upstream`: drafts 2020-12 and 7, required and optional. Every schema is
compiled over a vocabulary of the 256 single bytes, and every instance is written as JSON and offered to the matcher.
A case counts as wrong if an invalid instance is accepted, or a valid one refused without a reason of the table below
that the test verifies. No case is wrong, and one test that reads no expectations says so. The outcome of every group
is in `tests/json_schema_suite/expected.txt`.
"""
REASONS = {
    "key order": "Members come in declared order. The same members in another order are accepted.",
    "number spelling": "Not every spelling of a number is in the language. The same number in one that is is accepted.",
    "integer beyond int64": "An integer fits int64. The nearest that does is accepted.",
    "format asserted": "`format` is an assertion here, where the suite takes it as an annotation. "
    "Without the keyword the instance is accepted.",
    "punycode label": "A `hostname` has no label that begins with `xn--`. Without the prefix it is accepted.",
    "content not asserted": "`contentEncoding` and `contentMediaType` are annotations in every draft. In draft 7 the "
    "suite has optional cases that assert them; these are the only invalid instances that are accepted.",
}

Verdicts = Mapping[str, Sequence[Verdict]]


def section(file: str, verdicts: Sequence[Verdict]) -> str:
    """What the expected-results file says about one file of the suite."""
    lines = [f"== {file}"]
    for index, verdict in enumerate(verdicts):
        lines.append(f"{index} {verdict.outcome} | {verdict.group.description}")
        for case, text in verdict.exceptions.items():
            lines.append(f"    {case} {text} | {verdict.group.cases[case].description}")
    return "\n".join(lines) + "\n"


def expectations(verdicts: Verdicts) -> str:
    """The text of the expected-results file."""
    return HEADER + "".join("\n" + section(file, found) for file, found in verdicts.items())


def page(verdicts: Verdicts) -> str:
    """The text of the documentation page."""
    parts = [INTRODUCTION, _totals(verdicts), _exceptions(verdicts), _refusals(verdicts)]
    return "\n".join(parts)


def _totals(verdicts: Verdicts) -> str:
    rows = []
    for draft in ("draft2020-12", "draft7"):
        for part in PARTS:
            found = [
                v for file, all_ in verdicts.items() if file.startswith(draft) and _part(file) == part for v in all_
            ]
            enforced = [verdict for verdict in found if not verdict.refusal]
            cases, refused = (sum(len(v.group.cases) for v in group) for group in (found, _refused(found)))
            excepted = sum(len(verdict.exceptions) for verdict in found)
            row = (draft, part, len(found), len(enforced), cases, cases - refused - excepted, refused, excepted)
            rows.append("| " + " | ".join(map(str, row)) + " |")
    head = "| draft | part | schemas | enforced | cases | as the suite says | schema refused | exceptions |"
    return "\n".join(["## Totals\n", head, "|---|---|---|---|---|---|---|---|", *rows, ""])


def _exceptions(verdicts: Verdicts) -> str:
    counts = Counter(
        text.partition(": ")[2]
        for all_ in verdicts.values()
        for verdict in all_
        for text in verdict.exceptions.values()
    )
    rows = [f"| {reason} | {counts[reason]} | {text} |" for reason, text in REASONS.items() if counts[reason]]
    return "\n".join(["## Exceptions\n", "| reason | cases | what is verified |", "|---|---|---|", *rows, ""])


def _refusals(verdicts: Verdicts) -> str:
    refused = [(file, verdict) for file, all_ in verdicts.items() for verdict in _refused(all_)]
    counts = Counter((v.refusal.keyword, _part(file)) for file, v in refused if v.refusal)
    totals = Counter(v.refusal.keyword for _, v in refused if v.refusal)
    rows = [
        f"| `{keyword}` | {total} | " + " | ".join(str(counts[keyword, part]) for part in PARTS) + " |"
        for keyword, total in sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    ]
    head = "| keyword | schemas | " + " | ".join(PARTS) + " |"
    return "\n".join(["## Refused schemas, by the keyword at fault\n", head, "|---|---|---|---|---|", *rows, ""])


def _refused(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.refusal]


def _part(file: str) -> str:
    return FORMATS if "/optional/format/" in file else OPTIONAL if "/optional/" in file else REQUIRED
