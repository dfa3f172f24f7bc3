"""The JSON Schema Test Suite: every case is enforced right or refused, never wrong, and nothing changes unnoticed."""

import pytest

from tests.json_schema_suite import report
from tests.json_schema_suite.cases import Case, Group, Number, files
from tests.json_schema_suite.judge import (
    INVALID_ACCEPTED,
    LENIENT,
    STRICT,
    VALID_REFUSED,
    all_verdicts,
    judge,
    verdicts,
)

REGENERATE = "if that is what should be, run scripts/json_schema_suite.py"
SECTIONS = {part.partition("\n")[0]: part for part in report.EXPECTED.read_text(encoding="utf-8").split("\n== ")[1:]}


@pytest.mark.parametrize("compiler", [STRICT, LENIENT], ids=["strict", "unknown-keywords-ignored"])
@pytest.mark.parametrize("file", files())
def test_never_wrong(file, compiler):
    wrong = [
        (verdict.group.description, verdict.group.cases[index].description, text)
        for verdict in verdicts(file, compiler)
        for index, text in verdict.exceptions.items()
        if text in (INVALID_ACCEPTED, VALID_REFUSED)
    ]
    assert not wrong


@pytest.mark.parametrize("file", files())
def test_a_well_formed_schema_is_not_called_malformed(file):
    assert not [v.group.description for v in verdicts(file) if v.refusal and v.refusal.error == "InvalidSchema"]


@pytest.mark.parametrize("file", files())
def test_the_outcomes_are_the_expected_ones(file):
    expected = "== " + SECTIONS[file].rstrip("\n") + "\n"
    assert report.section(file, verdicts(file)) == expected, REGENERATE


def test_the_expected_results_and_the_page_are_those_of_this_suite():
    found = all_verdicts()
    assert set(SECTIONS) == set(found)
    assert report.EXPECTED.read_text(encoding="utf-8") == report.expectations(found), REGENERATE
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found), REGENERATE


# The judge itself: what is not excused must be seen.

ANY_ORDER = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "instance", "valid", "outcome"),
    [
        ({"type": "integer"}, Number("1"), True, None),
        ({"type": "integer"}, "a", False, None),
        ({"type": "integer"}, Number("1"), False, INVALID_ACCEPTED),
        ({"type": "integer"}, "a", True, VALID_REFUSED),
        ({"type": "integer"}, Number("1.0"), True, "valid refused: number spelling"),
        ({"type": "integer"}, Number("1.5"), True, VALID_REFUSED),
        ({"const": Number("-2.0")}, Number("-2"), True, "valid refused: number spelling"),
        ({"const": Number("-2.0")}, Number("-3"), True, VALID_REFUSED),
        ({"type": "integer"}, Number(2**80), True, "valid refused: integer beyond int64"),
        (ANY_ORDER, {"b": Number("1"), "a": Number("2")}, True, "valid refused: key order"),
        (ANY_ORDER, {"b": Number("1"), "c": Number("2")}, True, VALID_REFUSED),
        ({"format": "ipv4"}, "x", True, "valid refused: format asserted"),
        ({"format": "ipv4", "maxLength": Number("1")}, "xx", True, VALID_REFUSED),
        ({"contentEncoding": "base64"}, "%", False, "invalid accepted: content not asserted"),
        ({"contentEncoding": "base64", "type": "string"}, "%", False, INVALID_ACCEPTED),
        (False, Number("1"), True, VALID_REFUSED),
    ],
)
def test_the_judge_excuses_only_what_it_verified(schema, instance, valid, outcome):
    verdict = judge(Group("", schema, (Case("", instance, valid),)), formats_asserted=False)
    assert verdict.refusal is None
    assert verdict.exceptions == ({} if outcome is None else {0: outcome})


def test_where_formats_are_asserted_they_excuse_nothing():
    group = Group("", {"format": "ipv4"}, (Case("", "x", True),))
    assert judge(group, formats_asserted=True).exceptions == {0: VALID_REFUSED}


def test_a_refusal_is_named_by_its_keyword_and_pointer():
    refusal = judge(Group("", {"items": {"format": "regex"}}, ()), formats_asserted=False).refusal
    assert refusal is not None
    assert (refusal.error, refusal.keyword, refusal.pointer) == ("UnsupportedSchema", "format", "#/items/format")
