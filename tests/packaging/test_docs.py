"""Documentation that can be compared with the code is."""

import re
import subprocess
import sys
from pathlib import Path

from infernix_plugin.seams.versions import SUPPORTED
from infernix_plugin.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_json_schema_page_is_what_the_code_says():
    done = subprocess.run([sys.executable, "scripts/json_schema_table.py", "--check"], cwd=ROOT)
    assert done.returncode == 0, "run scripts/json_schema_table.py"


def test_the_settings_table_is_complete():
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", README, re.MULTILINE))
    assert rows == {name: str(field.default) for name, field in Settings.model_fields.items()}


def test_the_supported_versions_are_those_of_the_code():
    for major, minor in SUPPORTED:
        assert f"{major}.{minor}" in README
    first, last = min(SUPPORTED), max(SUPPORTED)
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'cuda = ["vllm>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"]' in pyproject


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
