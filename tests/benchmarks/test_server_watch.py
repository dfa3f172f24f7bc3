"""What the soak says of a server: growth, sums of metrics, and the complaints that fail it."""

import os

import pytest

from benchmarks.server_load import Tally, complaint_of, complaint_of_call
from benchmarks.server_streams import Streamed
from benchmarks.server_watch import Watched, resident_bytes
from benchmarks.soak_server import Soaked, table
from tests.oracles.soak_languages import SOAK_LANGUAGES

MIB = 1 << 20
SERIES = [{("hits", (("kind", "a"), ("process", "x"))): 1.0, ("hits", (("kind", "b"), ("process", "x"))): 2.0}] * 4


def watched(*sizes):
    parts = [{"core": size * MIB, "steady": 7 * MIB} for size in sizes]
    return Watched([30.0 * at for at in range(len(sizes))], [0] * len(sizes), parts, SERIES[: len(sizes)])


def test_growth_is_a_minute_and_begins_after_the_start():
    assert watched(50, 10, 12, 14).slope("core", skip=30) == pytest.approx(4)
    assert watched(50, 10, 12, 14).slope("steady", skip=0) == pytest.approx(0, abs=1e-9)


def test_metrics_are_added_up_over_the_labels_that_are_not_given():
    assert watched(1, 1).series("hits") == [3, 3]
    assert watched(1, 1).series("hits", kind="b") == [2, 2]
    assert watched(1).series("misses") == [0]


def test_own_memory_is_found_by_session():
    sizes = resident_bytes(os.getsid(0))
    assert sum(sizes.values()) > 10 * MIB
    assert resident_bytes(-5) == {}


def test_every_fault_is_a_complaint():
    assert Soaked(Tally(), watched(1), True, []).complaints == []
    assert Soaked(Tally(), watched(1), True, [], 3).complaints == ["3 outputs or refusals are not in the metrics"]
    assert Soaked(Tally(lost=2), watched(1), True, []).complaints == ["2 tokens were lost"]
    assert Soaked(Tally(wrong=["x"]), watched(1), False, ["ERROR y"]).complaints == ["x", "ERROR y", "the server ended"]
    assert "| **server restarts** | 1 |" in table(Soaked(Tally(), watched(1, 1, 1, 1), False, []), streams=1, seconds=1)


DATE = next(language for language in SOAK_LANGUAGES if language.name == "date")
WHOLE = {"complete": True, "terminated": True, "branch": "content"}


@pytest.mark.parametrize(
    ("text", "reason", "record", "complaint"),
    [
        ("2024-01-31", "stop", WHOLE, None),
        ("2024-01", "length", {"complete": False, "terminated": False}, None),
        ("2024-01-31", "length", {"complete": True, "terminated": False}, None),
        ("2024-01-31", "stop", None, "no record"),
        ("2024-13-31", "stop", WHOLE, "not in the language"),
        ("2024-01-31", "stop", {**WHOLE, "terminated": False}, "the record is"),
        ("2024-01-31", "stop", {**WHOLE, "branch": "tools"}, "the record is"),
        ("x", "length", {"complete": False, "terminated": False}, "does not begin anything"),
        ("2024-01-31", "length", WHOLE, "did not end by itself"),
        ("2024-01-31", "abort", WHOLE, "a strange end"),
    ],
)
def test_an_output_is_judged_by_its_text_its_end_and_its_record(text, reason, record, complaint):
    found = complaint_of(DATE, Streamed(text, [], reason, record))
    assert (found is None) if complaint is None else complaint in found


CALLED = {"kind": "tools", "complete": True, "terminated": True, "branch": "tools"}
LEGAL = ["book", '{"seats": 3, "row": "b"}']


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (Streamed("", [LEGAL], "tool_calls", CALLED), None),
        (Streamed("", [LEGAL], "tool_calls", None), "no record"),
        (Streamed("x", [LEGAL], "tool_calls", CALLED), "text beside"),
        (Streamed("", [LEGAL, LEGAL], "tool_calls", CALLED), "a strange end"),
        (Streamed("", [LEGAL], "stop", CALLED), "a strange end"),
        (Streamed("", [["book", '{"seats": 30, "row": "b"}']], "tool_calls", CALLED), "does not take"),
        (Streamed("", [["fly", "{}"]], "tool_calls", CALLED), "does not take"),
        (Streamed("", [["book", "{"]], "tool_calls", CALLED), "does not take"),
        (Streamed("", [LEGAL], "tool_calls", {**CALLED, "branch": "content"}), "the record is"),
        (Streamed("", [LEGAL], "tool_calls", {**CALLED, "kind": "regex"}), "the record is"),
        (Streamed("", [["book", '{"se']], "length", {**CALLED, "complete": False, "terminated": False}), None),
        (Streamed("", [], "length", CALLED), "did not end by itself"),
    ],
)
def test_a_call_is_judged_too(output, complaint):
    found = complaint_of_call(output)
    assert (found is None) if complaint is None else complaint in found
