"""Which tokens a query of sparse attention sees, against one query at a time."""

import pytest
import torch

from infernix_plugin.model_executor.models.flash_next.selection import best_blocks, tokens_of, visible

SIZE, HEADS, WIDTH = 4, 3, 8


def expected(queries, keys, position, k):
    """The open end of the context, and the tokens of the best complete blocks."""
    complete = (position + 1) // SIZE
    score = [sum(max(float(head @ key), 0.0) for head in queries) for key in keys[:complete]]
    best = sorted(range(complete), key=lambda block: -score[block])[:k]
    return {block * SIZE + i for block in best for i in range(SIZE)} | set(range(complete * SIZE, position + 1))


@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 31, 60])
def test_a_query_sees_the_best_blocks_and_the_open_end(k, length) -> None:
    generator = torch.Generator().manual_seed(length)
    requests, queries = 2, 5
    positions = torch.randint(length, (requests, queries), generator=generator)
    found = torch.randn(requests, queries, HEADS, WIDTH, generator=generator)
    keys = torch.randn(requests, 16, WIDTH, generator=generator)
    blocks = best_blocks(found, keys, (positions + 1) // SIZE, k)
    tokens, counts = tokens_of(blocks, positions, SIZE)
    mask = visible(blocks, positions, SIZE, length)
    for request in range(requests):
        for query in range(queries):
            sees = expected(found[request, query], keys[request], int(positions[request, query]), k)
            listed = tokens[request, query][counts[request, query]].tolist()
            assert sorted(listed) == sorted(sees)
            assert set(mask[request, query].nonzero().flatten().tolist()) == sees
