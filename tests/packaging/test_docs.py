"""Documentation that can be compared with the code is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from infernix_plugin import ConstraintError, GrammarOptions
from infernix_plugin.grammar import gbnf, lark, regex
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


# What docs/support.md lists, each as an example.
SUPPORTED_REGEXES = [
    *(r"a.b", r"[a-z\w-]", r"\d\D\w\W\s\S", r"\t\n\v\f\r\0\x41\u00e9", "a|b", "(a)(?:b)(?<name>c)"),
    *("a*b+c?", "a{2}b{2,}c{2,3}", "a*?b+?c??d{2,3}?", "^a$|^b"),
]
REFUSED_REGEXES = [
    *(r"\p{L}", r"\u{61}", r"\01", r"\uD83D\uDE00", "(?=a)", "(?!a)", "(?<=a)", r"(a)\1", "(?>a)", "(?i)a", "(?#a)"),
    *("a{,3}", "a++", "a**", r"\ba", r"\Ba", r"\Aa", r"a\Z", "(^a)", "(a$)b"),
]
SUPPORTED_GRAMMARS = [
    *(
        'root ::= "a\\n" [^a-z] . ("b" | "c") # comment',
        'root ::= "a"* "b"+ "c"?',
        'root ::= "a"{2} "b"{2,} "c"{2,3} "d"{,3}',
    ),
    *('root ::= "a" | root "b"', "root ::= <[5]> Token(6) ExcludeToken(7)"),
]
REFUSED_GRAMMARS = [
    *("root ::= x", 'root ::= "a"\nroot ::= "b"', 'root ::= root "a"', 'root[temperature=1] ::= "a"'),
    *(
        'root ::= TagDispatch(("a", b))',
        "root ::= TokenTagDispatch((1, b))",
        'root ::= Regex("a")',
        'root ::= Substring("a")',
    ),
]
REFUSED_LARK = ['%ignore " "\nstart: "a"', 'x{a}: a\nstart: x{"b"}', "%import python.NAME\nstart: NAME"]


@pytest.mark.parametrize("text", SUPPORTED_REGEXES)
def test_supported_regex(text):
    regex.parse(text, GrammarOptions())


@pytest.mark.parametrize("text", SUPPORTED_GRAMMARS)
def test_supported_grammar(text):
    gbnf.parse(text, GrammarOptions())


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((regex.parse, text) for text in REFUSED_REGEXES),
        *((gbnf.parse, text) for text in REFUSED_GRAMMARS),
        *((lark.parse, text) for text in REFUSED_LARK),
    ],
)
def test_refused(read, text):
    with pytest.raises(ConstraintError) as refused:
        read(text, GrammarOptions())
    assert refused.value.location
