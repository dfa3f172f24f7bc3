"""The report on speculation, on small made-up results; the run itself starts many engines."""

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "speculation.py"


@pytest.fixture(scope="module")
def speculation():
    spec = importlib.util.spec_from_file_location("speculation_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rows(speculation):
    plain = speculation.Figures(100, 80, [80, 40], [20, 0], seconds=2.0, mask_seconds=0.2)
    grammar = speculation.Figures(120, 60, [60, 60], [45, 15], seconds=1.2, mask_seconds=0.3)
    return [
        speculation.Row(speculation.OURS, "MTP", "regex", plain),
        speculation.Row(speculation.THEIRS, "MTP", "regex", None, "RuntimeError: why"),
        speculation.Row(speculation.OURS, "MTP + grammar", "regex", grammar),
    ]


def test_a_line_for_each_engine(speculation, rows):
    lines = speculation.table(rows, "regex").splitlines()[2:]
    assert lines == [
        "| MTP | infernix-plugin | 25 0 | 1.25 | 20.00 | 2.500 | 10.0 % |",
        "| MTP | vLLM | fails: `RuntimeError: why` | | | | |",
        "| MTP + grammar | infernix-plugin | 75 25 | 2.00 | 10.00 | 5.000 | 25.0 % |",
    ]


def test_what_the_grammar_adds_is_relative_to_the_same_proposer(speculation, rows):
    (line,) = speculation.gains(rows).splitlines()[2:]
    assert line.startswith("| MTP |")
    assert "1.60 / 0.50" in line


def test_raw_lines_are_read_again(speculation, rows):
    assert speculation.rows_of("".join(json.dumps(asdict(row)) + "\n" for row in rows)) == rows


def test_the_page_and_the_plot_are_written(speculation, rows, tmp_path):
    assert "fails: `RuntimeError: why`" in speculation.page(rows, "Made up.")
    for name in ("a.svg", "b.svg"):
        speculation.plot(rows, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_meter_counts_commits_and_accepted_drafts(speculation):
    class Manager:
        def validate_tokens(self, request, tokens):
            return tokens

        grammar_bitmask = accept_tokens = validate_tokens

    scheduler = SimpleNamespace(
        structured_output_manager=Manager(),
        update_from_output=lambda plan, output: {
            0: SimpleNamespace(outputs=[SimpleNamespace(new_token_ids=[1, 2, 3])])
        },
    )
    core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler))
    meter = speculation.Meter(SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core)))
    plan = SimpleNamespace(scheduled_spec_decode_tokens={"a": [7, 8], "b": [7]})
    output = SimpleNamespace(req_ids=["a", "b", "c", "d"], sampled_token_ids=[[7, 9], [7, 8], [5], []])
    scheduler.update_from_output(plan, output)
    assert scheduler.structured_output_manager.validate_tokens(None, [4]) == [4]
    figures = meter.figures
    assert (figures.tokens, figures.steps, figures.drafted, figures.accepted) == (3, 3, [2, 1], [2, 0])
    assert figures.mask_seconds >= 0
