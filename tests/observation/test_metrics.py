"""Metrics and log lines: fixed words only, and the dashboard asks for nothing that is not exported."""

import json
import logging
import re
import threading
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from infernix_plugin import errors, settings
from infernix_plugin.errors import for_log
from infernix_plugin.matching.cache import CacheStats
from infernix_plugin.matching.cache import Outcome as CacheOutcome
from infernix_plugin.observation import metrics as metrics_module
from infernix_plugin.observation import settle as settling
from infernix_plugin.observation.metrics import LABELS, SECONDS, metrics
from infernix_plugin.observation.outcome import Outcome, kind_label, outcome_of
from infernix_plugin.observation.settle import LINE, Ended, settle
from infernix_plugin.structured_output.record import EngineFigures, blank_record

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs/grafana-dashboard.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]

RECORD = {
    **blank_record("regex"),
    "cache": "built",
    "prepare_ms": 20.0,
    "mask_ms": 3.0,
    "accept_ms": 1.0,
    "mask_positions": 7,
    "mask_bytes": 700,
    "illegal_drafts": 2,
}
FIGURES = EngineFigures(index=3, cache_bytes=5000, cache_entries=2, compiling=1)


def ours():
    """Every metric of ours and its label names: {sample name: label names}."""
    metrics().count(RECORD, Outcome.STOP, FIGURES)
    metrics().count_refusal(errors.InvalidRegex("x"))
    metrics().count_judged(CacheOutcome.HIT, 0.1, CacheStats())
    families = [family for family in REGISTRY.collect() if family.name.startswith("infernix_")]
    return {
        sample.name: set(sample.labels)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0


def test_an_output_is_counted_once_with_its_work():
    names = {
        "infernix_mask_seconds_total": 0.003,
        "infernix_accept_seconds_total": 0.001,
        "infernix_mask_positions_total": 7,
        "infernix_mask_bytes_total": 700,
        "infernix_illegal_drafts_total": 2,
    }
    before = {name: value(name, kind="regex") for name in names}
    requests = value("infernix_requests_total", kind="regex", outcome="abort")
    built = value("infernix_prepare_seconds_sum", process="engine", cache="built")
    metrics().count(RECORD, Outcome.ABORT, FIGURES)
    assert {name: value(name, kind="regex") - before[name] for name in names} == pytest.approx(names)
    assert value("infernix_requests_total", kind="regex", outcome="abort") - requests == 1
    assert value("infernix_prepare_seconds_sum", process="engine", cache="built") - built == pytest.approx(0.02)
    assert value("infernix_engine_cache_bytes", engine="3") == 5000
    assert value("infernix_engine_compile_queue", engine="3") == 1


def test_a_request_that_never_had_a_grammar_is_no_use_of_the_cache():
    def uses():
        return sum(value("infernix_prepare_seconds_count", process="engine", cache=cache) for cache in LABELS["cache"])

    before = uses()
    metrics().count(blank_record("choice", errors.InvalidChoice("x")), Outcome.REFUSED, None)
    assert uses() == before


def test_a_refusal_is_counted_by_its_type_and_a_judgement_by_its_cache():
    refused = value("infernix_refusals_total", error="UnsupportedSchema")
    hits = value("infernix_prepare_seconds_count", process="api", cache="hit")
    metrics().count_refusal(errors.UnsupportedSchema("x", location="#/secret"))
    metrics().count_judged(CacheOutcome.HIT, 0.25, CacheStats(bytes=99))
    assert value("infernix_refusals_total", error="UnsupportedSchema") - refused == 1
    assert value("infernix_prepare_seconds_count", process="api", cache="hit") - hits == 1
    assert value("infernix_api_cache_bytes") == 99
    with metrics().judging():
        assert value("infernix_api_compile_queue") == 1
    assert value("infernix_api_compile_queue") == 0


def test_labels_are_fixed_words():
    names = ours()
    assert set().union(*names.values()) == {*LABELS, "engine", "le"}
    known = {name: set(values) for name, values in LABELS.items()}
    for family in REGISTRY.collect():
        if family.name.startswith("infernix_"):
            for sample in family.samples:
                for label, word in sample.labels.items():
                    assert label not in known or word in known[label], sample
    assert kind_label({"kind": "a word of a client"}) == "other"


WORDS = st.one_of(st.none(), st.text(), st.sampled_from([*LABELS["kind"], *LABELS["cache"], "error"]))


@given(kind=st.text() | st.sampled_from(LABELS["kind"]), cache=WORDS, error=WORDS, reason=WORDS)
def test_whatever_a_record_says_labels_stay_words_of_their_sets(kind, cache, error, reason):
    """A record comes from another process, and what it says from a client's request."""
    record = {**RECORD, "kind": kind, "cache": cache}
    if error is not None:
        record["error"] = {"type": error, "message": kind, "location": kind, "hint": kind}
    metrics().count(record, outcome_of(record, reason), FIGURES)
    test_labels_are_fixed_words()
    settled = settling._line(Ended("chat-1", 0, reason, record, None), outcome_of(record, reason))
    assert settled["kind"] in LABELS["kind"]
    assert settled["outcome"] in LABELS["outcome"]


class Unlisted(errors.ConstraintError):
    """Defined elsewhere, so that its name is in no list."""


def test_an_unknown_error_is_counted_under_the_base():
    before = value("infernix_refusals_total", error="ConstraintError")
    metrics().count_refusal(Unlisted("x"))
    assert value("infernix_refusals_total", error="ConstraintError") - before == 1


@pytest.mark.parametrize(
    ("error", "finish_reason", "outcome"),
    [
        (None, "stop", "stop"),
        (None, "length", "length"),
        (None, "abort", "abort"),
        (None, "error", "error"),
        (None, None, "error"),
        (errors.ConstraintDeadEnd("x"), "error", "dead_end"),
        (errors.NonFiniteLogits("x"), "error", "non_finite"),
        (errors.ConstraintTooLarge("x"), "error", "refused"),
        (errors.UnsupportedSchema("x"), "error", "refused"),
        (errors.InfernixError("x"), "error", "error"),
        (KeyError("x"), "error", "error"),
        (errors.ConstraintDeadEnd("x"), "abort", "dead_end"),
    ],
)
def test_outcomes(error, finish_reason, outcome):
    assert outcome_of(blank_record("regex", error), finish_reason) == outcome


def test_one_line_for_each_output_and_no_message_in_it(caplog):
    failed = blank_record("grammar", errors.InvalidGrammar("secret rule", location="#/secret", hint="secret"))
    with caplog.at_level(logging.INFO, logger=settling.__name__):
        settle(Ended("chat-1", 2, "length", RECORD, FIGURES), count=False)
        settle(Ended("chat-2", 0, "error", failed, None), count=False)
    first, second = [record.getMessage() for record in caplog.records]
    assert json.loads(first.removeprefix(LINE)) == {"request_id": "chat-1", "index": 2, "outcome": "length", **RECORD}
    told = json.loads(second.removeprefix(LINE))
    assert (told["outcome"], told["error"], told["kind"]) == ("refused", "InvalidGrammar", "grammar")
    assert "secret" not in second


def test_the_line_can_be_switched_off_and_counting_with_vllms_statistics(caplog, monkeypatch):
    monkeypatch.setattr(settings, "_current", settings.Settings(log_requests=False))
    before = value("infernix_requests_total", kind="regex", outcome="stop")
    with caplog.at_level(logging.INFO, logger=settling.__name__):
        settle(Ended("a", 0, "stop", RECORD, FIGURES), count=False)
        settle(Ended("b", 0, "stop", RECORD, FIGURES), count=True)
    assert not caplog.records
    assert value("infernix_requests_total", kind="regex", outcome="stop") - before == 1


def test_the_log_never_quotes_a_constraint():
    assert for_log(errors.UnsupportedSchema("secret", location="#/secret", hint="secret")) == "UnsupportedSchema"
    assert for_log(errors.ConstraintDeadEnd("After 3 output tokens")).startswith("ConstraintDeadEnd: After 3")

    def inner():
        raise KeyError("secret")

    try:
        inner()
    except KeyError as error:
        told = for_log(error)
    assert "secret" not in told
    assert re.fullmatch(r"KeyError in test_metrics\.py:\d+ inner < test_metrics\.py:\d+ test_the_log_never\w+", told)


def names_in(query):
    return set(re.findall(r"\binfernix_\w+", query))


def test_the_dashboard_asks_for_what_is_exported():
    exported = ours()
    for query in QUERIES:
        assert names_in(query), query
        for name in names_in(query):
            assert name in exported, f"{name} is not exported"
            grouped = re.findall(r"by \(([^)]*)\)", query) + re.findall(r"{(\w+)=", query)
            labels = {label.strip() for group in grouped for label in group.split(",")} - {"le"}
            assert labels <= exported[name], query


def test_the_dashboard_and_the_page_show_every_metric():
    ours()
    families = {family.name for family in REGISTRY.collect() if family.name.startswith("infernix_")}
    asked = {name for query in QUERIES for name in names_in(query)}
    for family in families:
        assert any(name.startswith(family) for name in asked), f"no panel shows {family}"
        assert f"`{family}" in PAGE, f"docs/operations.md does not explain {family}"


def test_the_page_lists_the_values_of_the_labels():
    listed = re.search(r"^The values of `error` are (.*?);", PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", listed[1]) == list(metrics_module.LABELS["error"])
    for label in ("kind", "outcome", "cache", "process"):
        for value in metrics_module.LABELS[label]:
            assert f"`{value}`" in PAGE, f"docs/operations.md does not name {label} {value}"


def test_buckets_reach_the_default_compile_limit():
    assert SECONDS[-1] >= settings.Settings().max_compile_seconds
    assert list(SECONDS) == sorted(set(SECONDS))


def test_threads_that_ask_first_at_once_get_the_same(monkeypatch):
    """A second registration of a name is an error of prometheus_client's."""
    made, barrier = [], threading.Barrier(8)

    class Slow:
        def __init__(self):
            time.sleep(0.05)
            made.append(self)

    monkeypatch.setattr(metrics_module, "_made", cache(Slow))
    found = []

    def ask():
        barrier.wait()
        found.append(metrics())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        monkeypatch.undo()
    assert len(made) == 1
    assert set(map(id, found)) == {id(made[0])}
