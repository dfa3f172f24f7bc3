"""What counts as wrong in the demo's report."""

import io

from rich.console import Console

from infernix_plugin.entrypoints.demo.jobs import MISTAKE_LOCATION, jobs
from infernix_plugin.entrypoints.demo.report import Answer, Refusal, Report
from infernix_plugin.entrypoints.demo.server import DraftCounts

FREE, MOOD = (next(job for job in jobs() if job.kind == kind) for kind in (None, "choice"))
NO_DRAFTS = DraftCounts(0, 0)


def shown(report):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(report.table())
    return console.export_text()


def test_a_wrong_answer_is_a_problem_and_a_right_one_is_not():
    report = Report("engine")
    report.add(MOOD, "client", Answer("negative", "stop", NO_DRAFTS, 0.5))
    assert report.problems == []
    report.add(MOOD, "client", Answer("negative!", "stop", NO_DRAFTS, 0.5))
    report.add(MOOD, "client", Answer("negative", "length", NO_DRAFTS, 0.5))
    assert len(report.problems) == 2
    assert "'negative!'" in report.problems[0]


def test_a_free_answer_is_not_judged():
    report = Report("engine")
    report.add(FREE, "client", Answer("Sure! Here is the person", "length", NO_DRAFTS, 0.5))
    assert report.problems == []


def test_a_refusal_needs_the_status_and_the_place():
    report = Report("engine")
    report.add_refusal("mistake", "client", Refusal(400, MISTAKE_LOCATION, "Unknown keyword", 0.01))
    assert report.problems == []
    report.add_refusal("mistake", "client", Refusal(200, None, "accepted", 0.01))
    report.add_refusal("mistake", "client", Refusal(400, None, "Unknown keyword", 0.01))
    assert len(report.problems) == 2


def test_speculation_that_proposes_nothing_is_a_problem():
    report = Report("engine")
    report.add(MOOD, "client", Answer("negative", "stop", NO_DRAFTS, 0.5))
    report.need_drafts()
    assert report.problems == ["engine: no draft token was proposed"]
    report = Report("engine")
    report.add(MOOD, "client", Answer("negative", "stop", DraftCounts(3, 1), 0.5))
    report.need_drafts()
    assert report.problems == []
    assert "1 of 3" in shown(report)


def test_output_is_shown_as_it_is_but_short_and_on_one_line():
    report = Report("engine")
    report.add(FREE, "client", Answer("[red]a\nb[/red]" + "c" * 500, "stop", NO_DRAFTS, 0.5))
    text = shown(report)
    assert "[red]a\\nb[/red]" in text.replace("\n", "")
    assert "c" * 100 not in text
