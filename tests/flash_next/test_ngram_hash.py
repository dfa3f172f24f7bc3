"""The rows of the n-gram table, against transformers, and the table where it lies in the files of a checkpoint."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

from infernix_plugin.model_executor.models.flash_next.ngram_hash import NgramHash, table_rows
from infernix_plugin.model_executor.models.flash_next.ngram_table import NgramTable

STREAMS = 400
LAYER = 1


class Rows(torch.nn.Module):
    """Stands in for an embedding and returns the rows that were asked for."""

    def __init__(self):
        super().__init__()
        self.weight = torch.empty(0)

    def forward(self, rows):
        return rows.unsqueeze(-1)


def theirs(config, index):
    module = Qwen4ExpTextNGramEmbedding(config, config.ple_embed_dim, layer_idx=LAYER, ple_layer_index=index)
    declared = module.ngram_embedding.num_embeddings
    module.ngram_embedding = Rows()
    return module, declared


def recent(tokens, context, cut):
    """Each token behind those before it; in front of the first one there are end-of-text tokens."""
    padded = torch.tensor([cut] * context + tokens)
    return padded.unfold(0, context + 1, 1)


def streams(seed, vocabulary):
    rng = random.Random(seed)
    for _ in range(STREAMS):
        yield [7 if rng.random() < 0.3 else rng.randrange(vocabulary) for _ in range(rng.randrange(1, 24))]


@pytest.mark.parametrize(("size", "heads", "base", "index"), [(3, 4, 500, 0), (3, 8, 20_000_000, 1), (4, 2, 97, 2)])
def test_rows_are_those_of_transformers(size, heads, base, index) -> None:
    """Hundreds of random texts, nearly a third of whose tokens end a text."""
    config = Qwen4ExpTextConfig(
        vocab_size=248_320, ngram_size=size, heads_per_ngram=heads, ngram_vocab_size_base=base, eos_token_id=[7, 9],
        ple_embed_dim=heads * (size - 1), hidden_size=64, num_hidden_layers=3, ple_layer_ids=[1, 2, 3],
        layer_types=["linear_attention"] * 3, num_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    reference, declared = theirs(config, index) if base < 1_000 else (theirs_small(config, index), None)
    ours = NgramHash.of(config, index)
    if declared is not None:
        assert table_rows(ours.primes, config.make_ngram_vocab_size_divisible_by) == declared
    for tokens in streams(size, config.vocab_size):
        expected = reference(torch.tensor([tokens]), None)[0]
        assert torch.equal(ours.rows(recent(tokens, ours.context, ours.cut)), expected)
    assert ours.rows(torch.empty(0, size, dtype=torch.long)).shape == (0, (size - 1) * heads)


@pytest.mark.parametrize("fault", ["no cut", "another layer's multipliers", "another layer's primes"])
def test_a_wrong_hash_is_noticed(fault) -> None:
    """The negative control: what differs only behind an end of text, and what differs everywhere."""
    config = Qwen4ExpTextConfig(
        vocab_size=2_112, ngram_size=3, heads_per_ngram=4, ngram_vocab_size_base=500, eos_token_id=7,
        ple_embed_dim=8, hidden_size=64, num_hidden_layers=2, ple_layer_ids=[1, 2],
        layer_types=["linear_attention"] * 2, num_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    reference, _ = theirs(config, 0)
    ours, other = NgramHash.of(config, 0), NgramHash.of(config, 1)
    wrong = {
        "no cut": replace(ours, cut=config.vocab_size),
        "another layer's multipliers": replace(ours, multipliers=other.multipliers),
        "another layer's primes": replace(ours, primes=other.primes),
    }[fault]
    different = 0
    for tokens in streams(1, config.vocab_size):
        expected = reference(torch.tensor([tokens]), None)[0]
        assert torch.equal(ours.rows(recent(tokens, ours.context, ours.cut)), expected)
        different += not torch.equal(wrong.rows(recent(tokens, ours.context, ours.cut)), expected)
    assert different > STREAMS / 2


def theirs_small(config, index):
    """Their hash of a table of the released size, without room for the table itself."""
    with torch.device("meta"):
        module = Qwen4ExpTextNGramEmbedding(config, config.ple_embed_dim, layer_idx=LAYER, ple_layer_index=index)
    from transformers.models.qwen4_exp.modeling_qwen4_exp import _build_layer_multipliers

    module.layer_multipliers = _build_layer_multipliers(config.vocab_size, config.ngram_size, index, config.seed)
    module.ngram_heads_vocab_sizes = torch.tensor(module.head_vocab_sizes)
    module.ngram_heads_offsets = torch.tensor(module.head_offsets)
    module.ngram_embedding = Rows()
    return module


def mapped_file(address):
    """Return the file that the kernel has mapped at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return name
    return None


def test_the_table_is_read_where_it_lies(flash_next) -> None:
    """Every shard is memory of the file itself; rows come back in order, whatever shards they are on."""
    table = NgramTable.map(flash_next, LAYER, 0)
    path = flash_next / "model.safetensors"
    assert [mapped_file(shard.data_ptr()) for shard in table.shards] == [str(path)] * 4
    tensors = load_file(path)
    whole = torch.cat(
        [tensors[f"model.layers.1.ple.ple_embedding.ngram_embedding.shard_{number}.weight"] for number in range(4)]
    )
    rows = torch.randint(len(whole), (37, 8), generator=torch.Generator().manual_seed(1))
    assert torch.equal(table[rows], whole[rows])
    assert table[torch.empty(0, 8, dtype=torch.long)].shape == (0, 8, whole.size(1))


def test_shards_may_lie_in_several_files_or_be_one(flash_next, tmp_path) -> None:
    tensors = {name: value for name, value in load_file(flash_next / "model.safetensors").items() if ".ple." in name}
    rows = torch.arange(0, 2000, 7)
    expected = NgramTable.map(flash_next, LAYER, 0)[rows]
    split, single = tmp_path / "split", tmp_path / "single"
    for folder in (split, single):
        folder.mkdir()
    parts = [
        {name: value for name, value in tensors.items() if ("shard_2" in name) is other} for other in (True, False)
    ]
    for number, part in enumerate(parts):
        save_file(part, split / f"part{number}.safetensors")
    names = {name: f"part{number}.safetensors" for number, part in enumerate(parts) for name in part}
    (split / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    shards = [tensors[f"model.layers.1.ple.ple_embedding.ngram_embedding.shard_{n}.weight"] for n in range(4)]
    save_file(
        {"model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight": torch.cat(shards)},
        single / "model.safetensors",
    )
    for folder in (split, single):
        assert torch.equal(NgramTable.map(folder, LAYER, 0)[rows], expected)


def test_an_incomplete_table_is_an_error_that_says_so(flash_next, tmp_path) -> None:
    with pytest.raises(ValueError, match="layer 0: there is none"):
        NgramTable.map(flash_next, 0, 0)
    with pytest.raises(ValueError, match="has 4352 rows, its hash needs 5000"):
        NgramTable.map(flash_next, LAYER, 5000)
    shutil.copytree(flash_next, tmp_path / "less")
    tensors = load_file(flash_next / "model.safetensors")
    del tensors["model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight"]
    save_file(tensors, tmp_path / "less" / "model.safetensors")
    with pytest.raises(ValueError, match=r"3 are there, missing are \[2\]"):
        NgramTable.map(tmp_path / "less", LAYER, 0)
    name = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight"
    save_file(tensors | {name: torch.zeros(544, 32, dtype=torch.int8)}, tmp_path / "less" / "model.safetensors")
    with pytest.raises(ValueError, match=r"shard_2\.weight is stored as I8"):
        NgramTable.map(tmp_path / "less", LAYER, 0)


def test_a_table_between_two_numbers_is_refused_not_misread(flash_next, tmp_path) -> None:
    """The format allows it, the library that writes the files avoids it, and nothing but whole numbers is mapped."""
    name = "model.layers.1.ple.ple_embedding.ngram_embedding.weight"
    header = {
        "odd": {"dtype": "I8", "shape": [3], "data_offsets": [0, 3]},
        name: {"dtype": "BF16", "shape": [2, 2], "data_offsets": [3, 11]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(11))
    with pytest.raises(ValueError, match=f"begins between two of its numbers, at byte {8 + len(text) + 3} of its file"):
        NgramTable.map(tmp_path, LAYER, 0)
