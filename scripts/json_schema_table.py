"""Write docs/json-schema.md from the keyword table of the code, so that the two cannot disagree.

python scripts/json_schema_table.py          rewrite the page
python scripts/json_schema_table.py --check  exit 1 if the page is not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from infernix_plugin.grammar.json_schema import formats, vocabulary
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS

PAGE = Path(__file__).parents[1] / "docs" / "json-schema.md"
INTRODUCTION = """\
# JSON Schema: what is enforced

This page is written by `scripts/json_schema_table.py` from the keyword table of the code; a test compares the two.

A keyword is enforced exactly, or the request is refused with HTTP 400 and the JSON Pointer of the keyword. Nothing is
ignored in silence: an unknown keyword is refused as well, because it may be a typing error in an assertion. The setting
`unknown_keywords=ignore` turns only that last rule off, for keywords and for names of formats, and follows draft-04 to
draft-07 in passing over what stands next to a `$ref`. Names that start with `x-` or `_` are annotations.
"""


def page() -> str:
    """Return the text of the page."""
    enforced = {keyword: _first_line(check.__doc__) for keyword, check in ASSERTIONS.items()}
    return (
        "\n".join(
            [
                INTRODUCTION,
                *_section("Enforced", "what holds for every output", enforced),
                *_section("Formats", "which strings have it", _format_lines()),
                *_section("Accepted, asserts nothing", "why", {**vocabulary.STRUCTURE, **vocabulary.ANNOTATIONS}),
                *_section("Refused", "what to write instead", vocabulary.REFUSED),
                *_section("Refused formats", "what to write instead", formats.REFUSED_FORMATS),
            ]
        ).rstrip()
        + "\n"
    )


def _format_lines() -> dict[str, str]:
    strings = {name: _first_line(language.__doc__) for name, language in formats.FORMATS.items()}
    numbers = {
        name: "OpenAPI: an integer of this many bits." if limits.integer else "OpenAPI: a finite number of this size."
        for name, limits in formats.NUMBER_FORMATS.items()
    }
    return {**strings, **numbers, **formats.FREE_FORMATS}


def _section(title: str, meaning: str, keywords: Mapping[str, str]) -> list[str]:
    rows = [f"| `{keyword}` | {text} |" for keyword, text in keywords.items()]
    return [f"## {title}\n", f"| name | {meaning} |", "|---|---|", *rows, ""]


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0].replace("``", "`").replace("|", "\\|")


def main() -> int:
    """Run the command of the module's docstring."""
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
