"""n-gram copies against a search written the slow way."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.spec_decode.ngram_copy import CopyBounds, NgramCopies, NgramIndex
from infernix_plugin.spec_decode.proposal import Proposal
from infernix_plugin.spec_decode.worker import RunnerState
from tests.engine.engine_process import EngineProcess

BOUNDS = CopyBounds(min_match=2, max_match=4)
TEXT = st.lists(st.integers(0, 2), max_size=40)


def slow_copy(text, limit, least, most):
    best, longest = 0, 0
    for end in range(len(text) - 1, least - 1, -1):
        length = 0
        while length < min(end, most) and text[end - 1 - length] == text[len(text) - 1 - length]:
            length += 1
        if length >= least and length > longest:
            best, longest = end, length
    return [text[best + step % (len(text) - best)] for step in range(limit)] if longest else []


def array(text):
    return np.array(text, dtype=np.int32)


@given(TEXT, st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_longest_match_newest_first_however_the_text_arrives(text, cuts):
    index, length = NgramIndex(BOUNDS), 0
    for cut in cuts:
        length = min(len(text), length + cut)
        index.extend(array(text[: length - length % 3]))
        index.append(array(text[length - length % 3 : length]))
        assert index.copy(5) == slow_copy(text[:length], 5, 2, 4)


@given(TEXT, TEXT)
def test_another_text_in_the_row_leaves_nothing_of_the_first(first, second):
    index = NgramIndex(BOUNDS)
    index.extend(array(first))
    index.extend(array(second))
    assert index.copy(3) == slow_copy(second, 3, 2, 4)


def test_memory_is_bounded_and_what_is_out_of_the_window_is_forgotten():
    index = NgramIndex(CopyBounds(min_match=2, max_match=4, window=16))
    text = [7, 8, 9, *range(100, 400)]
    for length in range(1, len(text) + 1):
        index.extend(array(text[:length]))
        assert len(index._buffer) <= 64
        assert len(index._newest) <= 32
    index.extend(array([*text, 7, 8]))
    assert index.copy(3) == []


TEXTS = [[1, 2, 3, 4, 5, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4] * 3, [1, 2, 3, 4, 1, 2, 3], [1, 2, 3] * 2]
COPIES = [[4, 5, 1], [], [], [], [1, 2, 3]]
"""Of the third row, which is full, and the fourth, which is in the middle of its prompt, there are none."""


def runner_of(method, bookkept):
    lengths = [len(text) - (0 if bookkept or row == 3 else 1) for row, text in enumerate(TEXTS)]
    texts = np.zeros((len(TEXTS), 12), dtype=np.int32)
    for row, text in enumerate(TEXTS):
        texts[row, : lengths[row]] = text[: lengths[row]]
    return SimpleNamespace(
        speculative_config=SimpleNamespace(method=method),
        max_model_len=12,
        discard_request_mask=SimpleNamespace(np=np.array([row == 3 for row in range(8)])),
        requests=dict.fromkeys("abcde"),
        input_batch=SimpleNamespace(
            req_ids=list("abcde"), token_ids_cpu=texts, num_tokens_no_spec=np.array(lengths), vocab_size=100
        ),
        _draft_probs=None,
    )


def state():
    started = RunnerState(NgramCopies(CopyBounds()))
    started.begin(SimpleNamespace(num_spec_tokens_to_schedule=3), None)
    return started


def test_copies_take_the_place_of_vllms_matcher():
    sampled = [text[-1:] if row != 3 else [] for row, text in enumerate(TEXTS)]
    assert state().propose(runner_of("ngram", bookkept=True), sampled, pytest.fail) == COPIES


def test_rows_without_a_match_keep_the_drafts_of_a_matcher():
    sampled = [text[-1:] if row != 3 else [] for row, text in enumerate(TEXTS)]
    drafts = state().propose(runner_of("suffix", bookkept=True), sampled, lambda: [[9]] * 5)
    assert drafts == [copy or [9] for copy in COPIES]


@pytest.mark.parametrize("sampled_drafts", [False, True])
def test_copies_replace_single_rows_of_a_model(sampled_drafts):
    """The tokens of the step are not in the batch yet; -1 stands behind them."""
    runner = runner_of("mtp", bookkept=False)
    sampled = torch.tensor([[text[-1] if row != 3 else -1, -1] for row, text in enumerate(TEXTS)])

    def draft():
        runner._draft_probs = torch.full((5, 3, 100), 0.01) if sampled_drafts else None
        return torch.full((5, 3), 9, dtype=torch.int32)

    drafts = state().propose(runner, sampled, draft)
    assert drafts.tolist() == [copy or [9, 9, 9] for copy in COPIES]
    if sampled_drafts:
        assert isinstance(runner._draft_probs, Proposal)
        assert runner._draft_probs.one_hot.tolist() == [[bool(copy)] * 3 for copy in COPIES]
    else:
        assert runner._draft_probs is None


def test_finished_requests_are_forgotten():
    started, runner = state(), runner_of("ngram", bookkept=True)
    started.propose(runner, [[3], [4], [4], [], [3]], pytest.fail)
    assert set(started._copies._indexes) == {"a", "b", "e"}
    runner.requests = {"b": None}
    started.end(runner, SimpleNamespace())
    assert set(started._copies._indexes) == {"b"}


WORDS = "(red green blue ){6}"
PROMPT = "red green blue red green blue red green "


@pytest.mark.engine
@pytest.mark.parametrize(
    "speculation",
    [
        {"method": "ngram", "prompt_lookup_min": 100, "prompt_lookup_max": 100},
        {"method": "mtp", "draft_sample_method": "probabilistic"},
    ],
    ids=["ngram", "mtp"],
)
def test_copies_in_the_engine(tiny_model, speculation):
    """vLLM's own matcher would find nothing with these settings, and the model's head does not know the words."""
    engine = EngineProcess(
        str(tiny_model),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        speculative_config={"num_speculative_tokens": 3, **speculation},
        additional_config={"infernix": {"ngram_copies": True}},
        disable_log_stats=False,
    )
    structured = {"structured": {"regex": WORDS}}
    try:
        outputs = engine.generate(
            [
                {"prompt": PROMPT, "options": {"temperature": temperature, "seed": 5, "max_tokens": 80}, **extra}
                for temperature in (0.0, 1.0)
                for extra in (structured, {})
            ]
        )
        steps = engine.counter("vllm:spec_decode_num_drafts")
        accepted = engine.counter("vllm:spec_decode_num_accepted_tokens")
    finally:
        engine.close()
    assert outputs[0][0]["text"] == outputs[2][0]["text"] == "red green blue " * 6
    assert accepted > steps / 4
