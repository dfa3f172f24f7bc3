"""Where drafts cannot be replaced, whoever switched it on is told."""

import logging
import pickle
from types import SimpleNamespace

import pytest

from infernix_plugin import settings
from infernix_plugin.spec_decode import replacement
from infernix_plugin.spec_decode.proposal import mark_one_hot, one_hot_positions


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
    ("section", "warned", "informed"),
    [
        ({}, [], ["grammar_drafts"]),  # on by default
        ({"grammar_drafts": False, "ngram_copies": False}, [], []),
        ({"grammar_drafts": True}, ["grammar_drafts"], []),
        ({"grammar_drafts": True, "ngram_copies": True}, ["grammar_drafts", "ngram_copies"], []),
    ],
)
@pytest.mark.parametrize("speculates", [True, False])
def test_who_asked_is_warned_and_everybody_with_drafts_is_told(caplog, section, warned, informed, speculates):
    with caplog.at_level(logging.INFO):
        replacement.tell(settings.load({"infernix": section}, {}), "something", speculates=speculates)
    found = {level: [record.args for record in caplog.records if record.levelno == level] for level in (30, 20)}
    assert found[logging.WARNING] == [(name, "something") for name in warned]
    assert found[logging.INFO] == [(name, "something") for name in informed if speculates]


def test_the_marks_of_replaced_drafts_reach_a_worker_in_another_process():
    """vLLM pickles what the scheduler sends; without its mark a draft of the grammar would get the drafter's q."""
    from vllm.v1.core.sched.output import SchedulerOutput

    sent = SchedulerOutput.make_empty()
    mark_one_hot(sent, "a", 0b101)
    assert one_hot_positions(pickle.loads(pickle.dumps(sent))) == {"a": 0b101}
    assert one_hot_positions(pickle.loads(pickle.dumps(SchedulerOutput.make_empty()))) == {}
