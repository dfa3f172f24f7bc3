"""docs/limits.md lists every setting that is a limit, with its default, where it is enforced, and its tests."""

import re
from pathlib import Path

from infernix_plugin.settings import Settings

ROOT = Path(__file__).parents[2]
NO_LIMITS = {
    *("grammar_drafts", "ngram_copies", "ngram_min_match", "ngram_max_match", "ngram_candidates", "ngram_window"),
    *("tool_constraints", "max_whitespace", "unknown_keywords", "log_requests", "isolate_compiles"),
}
"""Settings that change what is done, and refuse nothing."""


def rows() -> dict[str, list[str]]:
    text = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    (header,) = re.findall(r"^\| limit \| default \| bounds .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in header.splitlines()]
    return {row[0].strip("` "): row[1:] for row in cells}


def test_every_limit_is_in_the_table() -> None:
    assert rows().keys() == Settings.model_fields.keys() - NO_LIMITS
    assert Settings.model_fields.keys() >= NO_LIMITS


def test_defaults_places_and_tests_are_true() -> None:
    for name, (default, _, where, tests) in rows().items():
        assert default.strip("`") == str(Settings.model_fields[name].default), name
        for place in re.findall(r"`([^`]+)`", where):
            assert (ROOT / "infernix_plugin" / place).is_file(), place
        for test in re.findall(r"`([^`]+)`", tests):
            assert (ROOT / test).is_file(), test
