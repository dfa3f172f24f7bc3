"""Write what becomes of the vendored JSON Schema Test Suite: the expected results and docs/json-schema-suite.md.

python scripts/json_schema_suite.py    rewrite both; exit 1 if a case is wrong
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.json_schema_suite import judge, report


def main() -> int:
    """Run the command of the module's docstring."""
    verdicts = judge.all_verdicts()
    report.EXPECTED.write_text(report.expectations(verdicts), encoding="utf-8")
    report.PAGE.write_text(report.page(verdicts), encoding="utf-8")
    wrong = [text for all_ in verdicts.values() for verdict in all_ for text in verdict.exceptions.values()]
    return int(any(text in (judge.INVALID_ACCEPTED, judge.VALID_REFUSED) for text in wrong))


if __name__ == "__main__":
    sys.exit(main())
