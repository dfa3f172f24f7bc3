"""The MaskBench report on small made-up results; the run itself needs data that is not in this repository."""

import importlib.util
import json
import math
import random
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "maskbench.py"


@pytest.fixture(scope="module")
def maskbench():
    spec = importlib.util.spec_from_file_location("maskbench_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def bin_of(nanoseconds: int) -> int:
    """The harness's bins: 16 in each power of two."""
    if nanoseconds < 32:
        return nanoseconds
    shift = nanoseconds.bit_length() - 5
    return 16 * shift + (nanoseconds >> shift)


def histogram(values: list[int]) -> dict:
    bins = sorted({bin_of(value) for value in values})
    flat = [x for place in bins for x in (place, sum(bin_of(value) == place for value in values))]
    return {"n": len(values), "sum_ns": sum(values), "max_ns": max(values), "bins": flat}


def record(name: str, outcome: str, **more) -> dict:
    return {"name": name, "outcome": outcome, "valid_refused": 0, "order_only": 0, "invalid_accepted": 0, **more}


SIZES = {"Easy": 300, "Easy_tail": 100}
ROWS = [
    record("Easy---1.json", "pass", ttfm_us=1000, tbm=histogram([5_000, 7_000])),
    record("Easy---2.json", "compile_error"),
    record("Easy---3.json", "validation_error", valid_refused=1, order_only=1, ttfm_us=3000, tbm=histogram([9_000])),
    record("Easy---4.json", "validation_error", valid_refused=2, order_only=1, ttfm_us=2000, tbm=histogram([9_000])),
    record("Easy_tail---1.json", "invalidation_error", invalid_accepted=1, ttfm_us=500, tbm=histogram([1_000])),
    record("Easy_tail---2.json", "timeout"),
    record("Easy_tail---3.json", "pass", ttfm_us=800, tbm=histogram([2_000])),
    record("Easy_tail---4.json", "crash"),
]


def test_counts_and_weights(maskbench):
    summary = maskbench.summarise("x", ROWS, SIZES)
    assert (summary.schemas, summary.passing, summary.refused, summary.broken) == (8, 2, 1, 2)
    assert (summary.invalid_accepted, summary.valid_refused, summary.order_refused) == (1, 1, 1)
    assert summary.weighted == pytest.approx(100 * (300 * 1 / 4 + 100 * 1 / 4) / 400)
    assert summary.first_mask.largest == 20e6, "a time-out without a first mask counts as the limit"
    assert summary.first_mask.percentile(50) == 1000


def test_merged_histograms_agree_with_the_values(maskbench):
    source = random.Random(4)
    values = [[int(source.lognormvariate(9, 2)) + 1 for _ in range(300)] for _ in range(5)]
    merged = maskbench.of_histograms([histogram(part) for part in values])
    flat = sorted(value for part in values for value in part)
    assert merged.mean == pytest.approx(sum(flat) / len(flat) / 1000)
    assert merged.largest == flat[-1] / 1000
    for share in (1, 50, 90, 99):
        exact = flat[math.ceil(len(flat) * share / 100) - 1] / 1000
        assert merged.percentile(share) == pytest.approx(exact, rel=0.035)


def test_strata(maskbench):
    sizes = maskbench.strata_sizes("# name size\nEasy 300\nEasy_tail\t100 # odd\n\n")
    assert sizes == SIZES
    assert maskbench.stratum_of("Easy_tail---1.json", sizes) == "Easy_tail"


def test_page_and_plot(maskbench, tmp_path):
    pytest.importorskip("matplotlib")
    summaries = [maskbench.summarise(title, ROWS, SIZES) for title in ("one", "two")]
    page = maskbench.page(summaries)
    assert "| passing | 2 | 2 |" in page
    assert all(line.count("|") == 4 for line in page.splitlines() if line.startswith("|"))
    for name in ("a.svg", "b.svg"):
        maskbench.plot(summaries, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_results_are_read_without_header_and_footer(maskbench, tmp_path):
    lines = tmp_path / "x.jsonl"
    lines.write_text("\n".join(map(json.dumps, [{"meta": {}}, ROWS[0], {"end": {}}])))
    assert maskbench.records(lines) == ROWS[:1]
