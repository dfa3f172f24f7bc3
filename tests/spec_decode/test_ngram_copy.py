"""n-gram copies against a search written the slow way."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infernix_plugin.spec_decode.ngram_copy import NgramCopyProposer, NgramIndex

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
    index, length = NgramIndex(2, 4), 0
    for cut in cuts:
        length = min(len(text), length + cut)
        index.extend(array(text[:length]))
        assert index.copy(5) == slow_copy(text[:length], 5, 2, 4)


@given(TEXT, TEXT)
def test_another_text_in_the_row_leaves_nothing_of_the_first(first, second):
    index = NgramIndex(2, 4)
    index.extend(array(first))
    index.extend(array(second))
    assert index.copy(3) == slow_copy(second, 3, 2, 4)


def test_memory_is_bounded_and_what_is_out_of_the_window_is_forgotten():
    index = NgramIndex(2, 4, window=16)
    text = [7, 8, 9, *range(100, 400)]
    for length in range(1, len(text) + 1):
        index.extend(array(text[:length]))
        assert len(index._kept) <= 32
        assert len(index._newest) <= 32
    index.extend(array([*text, 7, 8]))
    assert index.copy(3) == []


def test_rows_of_a_batch():
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=3), model_config=SimpleNamespace(max_model_len=12)
    )
    texts = np.zeros((4, 12), dtype=np.int32)
    for row, text in enumerate([[1, 2, 3, 4, 5, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4] * 3, [1, 2, 3, 4, 1, 2, 3]]):
        texts[row, : len(text)] = text
    drafts = NgramCopyProposer(config).propose([[3], [4], [4], []], np.array([8, 4, 12, 7]), texts)
    assert drafts == [[4, 5, 1], [], [], []]
