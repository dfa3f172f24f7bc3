"""Sparse attention over its pages, against every query by itself, through random steps with rejected drafts."""

import random
from math import sqrt
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm
from infernix_plugin.model_executor.models.flash_next.rotary import Rotary
from infernix_plugin.model_executor.models.flash_next.sparse_attention import SparseAttention
from infernix_plugin.model_executor.models.flash_next.sparse_pages import FEW, SparseStepBuilder

BLOCK, BEST, PAGE, PAGES = 4, 3, 16, 24
HEADS, KV_HEADS, WIDTH, INDEX_HEADS, INDEX_WIDTH = 6, 2, 8, 12, 16
"""So many index heads that no block has the score 0: two of them would be equally good."""
ROW = 2 * KV_HEADS * WIDTH + INDEX_WIDTH
DRAFTS = 3


def layer():
    """The layer without projections, which need a distributed environment of vLLM's; in float32."""
    attention = SparseAttention.__new__(SparseAttention)
    nn.Module.__init__(attention)
    attention.heads, attention.kv_heads, attention.width = HEADS, KV_HEADS, WIDTH
    attention.block, attention.k = BLOCK, BEST
    attention.indexer = nn.Module()
    attention.indexer.width, attention.indexer.k_layernorm = INDEX_WIDTH, OffsetNorm(INDEX_WIDTH, 1e-6)
    parameters = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    attention.rotary = Rotary(SimpleNamespace(head_dim=WIDTH, rope_parameters=parameters))
    return attention


def builder():
    config = SimpleNamespace(hf_text_config=SimpleNamespace(indexer_compress_ratio=BLOCK, indexer_budget=BEST * BLOCK))
    vllm_config = SimpleNamespace(model_config=config, num_speculative_tokens=DRAFTS)
    return SparseStepBuilder(SimpleNamespace(block_size=PAGE), [], vllm_config, torch.device("cpu"))


def expected(attention, query, index_query, context):
    """Attend from one query to the context, whose last token is the query's own: everything from the start."""
    keys, values, raw = context.split([KV_HEADS * WIDTH, KV_HEADS * WIDTH, INDEX_WIDTH], dim=-1)
    complete = len(context) // BLOCK
    pooled = raw[: complete * BLOCK].view(complete, BLOCK, INDEX_WIDTH).mean(1)
    block_keys = attention.rotary(
        attention.indexer.k_layernorm(pooled)[:, None], torch.arange(complete) * BLOCK
    ).squeeze(1)
    scores = (index_query @ block_keys.T).relu().sum(0)
    best = scores.topk(min(BEST, complete)).indices.tolist()
    sees = [block * BLOCK + i for block in best for i in range(BLOCK)] + list(range(complete * BLOCK, len(context)))
    out = []
    for head in range(HEADS):
        part = slice(head // (HEADS // KV_HEADS) * WIDTH, (head // (HEADS // KV_HEADS) + 1) * WIDTH)
        weights = torch.softmax(keys[sees, part] @ query[head] / sqrt(WIDTH), 0)
        out.append(weights @ values[sees, part])
    return torch.stack(out)


@pytest.mark.parametrize("seed", range(6))
def test_every_query_sees_what_it_should(seed) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    attention, build = layer(), builder()
    rows = torch.randn(PAGES * PAGE, ROW, generator=generator)  # whatever was there before
    free = rng.sample(range(PAGES), PAGES)
    table = torch.tensor([[free.pop() for _ in range(8)] for _ in range(3)], dtype=torch.int32)
    committed = [torch.empty(0, ROW) for _ in range(3)]
    for _ in range(14):
        requests = rng.sample(range(3), rng.randrange(1, 4))
        counts = [rng.choice([1, 1, DRAFTS + 1, FEW, FEW + 3]) for _ in requests]
        counts = [min(count, 8 * PAGE - len(committed[r])) for r, count in zip(requests, counts, strict=True)]
        kept = [(r, count) for r, count in zip(requests, counts, strict=True) if count]
        if not kept:
            break
        requests, counts = map(list, zip(*kept, strict=True))
        new = torch.randn(sum(counts), ROW, generator=generator)
        queries = torch.randn(sum(counts), HEADS, WIDTH, generator=generator)
        found = torch.randn(sum(counts), INDEX_HEADS, INDEX_WIDTH, generator=generator)
        texts = [torch.cat([committed[r], part]) for r, part in zip(requests, torch.split(new, counts), strict=True)]
        slots = [
            int(table[r, position // PAGE]) * PAGE + position % PAGE
            for r, count in zip(requests, counts, strict=True)
            for position in range(len(committed[r]), len(committed[r]) + count)
        ]
        step = build.build(
            0,
            SimpleNamespace(
                query_start_loc_cpu=torch.tensor([0, *counts]).cumsum(0),
                seq_lens=torch.tensor([len(text) for text in texts]),
                num_reqs=len(requests),
                slot_mapping=torch.tensor(slots),
                block_table_tensor=table[requests],
            ),
        )
        attention._write(rows, new, step)
        out = attention._attend(queries, found, rows, step)
        token = 0
        for r, count, text in zip(requests, counts, texts, strict=True):
            for length in range(len(text) - count + 1, len(text) + 1):
                wanted = expected(attention, queries[token], found[token], text[:length])
                torch.testing.assert_close(out[token], wanted, atol=1e-4, rtol=1e-4)
                token += 1
            rejected = rng.randrange(count) if 1 < count <= DRAFTS + 1 else 0
            committed[r] = text[: len(text) - rejected]


@pytest.mark.parametrize("requests", [0, 2])
def test_a_step_without_tokens_leaves_the_pages(requests) -> None:
    rows = torch.randn(PAGES * PAGE, ROW)
    before = rows.clone()
    attention = layer()
    step = builder().build(
        0,
        SimpleNamespace(
            query_start_loc_cpu=torch.zeros(requests + 1, dtype=torch.int32),
            seq_lens=torch.full((requests,), 5),
            num_reqs=requests,
            slot_mapping=torch.empty(0, dtype=torch.long),
            block_table_tensor=torch.zeros(requests, 8, dtype=torch.int32),
        ),
    )
    attention._write(rows, rows[:0], step)
    queries, found = torch.empty(0, HEADS, WIDTH), torch.empty(0, INDEX_HEADS, INDEX_WIDTH)
    assert attention._attend(queries, found, rows, step).shape == (0, HEADS, WIDTH)
    assert torch.equal(rows, before)


def test_pages_hold_whole_blocks() -> None:
    config = SimpleNamespace(hf_text_config=SimpleNamespace(indexer_compress_ratio=5, indexer_budget=15))
    vllm_config = SimpleNamespace(model_config=config, num_speculative_tokens=0)
    with pytest.raises(ValueError, match="pages of 16 tokens do not hold whole index blocks of 5 tokens"):
        SparseStepBuilder(SimpleNamespace(block_size=PAGE), [], vllm_config, torch.device("cpu"))
