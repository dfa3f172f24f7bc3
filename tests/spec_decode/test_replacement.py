"""Where drafts cannot be replaced, whoever switched it on is told."""

import logging
from types import SimpleNamespace

import pytest

from infernix_plugin import settings
from infernix_plugin.spec_decode import replacement


def configuration(*, drafts=3, second_runner=False, asynchronous=False, stages=1):
    return SimpleNamespace(
        num_speculative_tokens=drafts,
        use_v2_model_runner=second_runner,
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        parallel_config=SimpleNamespace(pipeline_parallel_size=stages),
    )


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, None),
        ({"drafts": 0}, "a speculative configuration"),
        ({"second_runner": True}, "V1 model runner"),
        ({"asynchronous": True}, "synchronous scheduling"),
        ({"stages": 2}, "a single pipeline stage"),
    ],
)
def test_what_is_missing(changes, missing):
    found = replacement.obstacle(configuration(**changes))
    assert found is None if missing is None else missing in found


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({}, []),
        ({"grammar_drafts": False, "ngram_copies": False}, []),
        ({"grammar_drafts": True}, ["grammar_drafts"]),
        ({"grammar_drafts": True, "ngram_copies": True}, ["grammar_drafts", "ngram_copies"]),
    ],
)
def test_only_what_was_asked_for_is_missed(caplog, section, named):
    with caplog.at_level(logging.WARNING):
        replacement.warn(settings.load({"infernix": section}, {}), "something")
    assert [record.args[0] for record in caplog.records] == named
