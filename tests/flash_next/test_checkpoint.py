"""Checkpoints of Flash-Next beside the table of what they must hold."""

import shutil

import pytest
from safetensors.torch import load_file, save_file

from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.weights.inspection import inspect_checkpoint, require_parts
from infernix_plugin.model_executor.weights.layout import Part


def test_the_tiny_checkpoint_is_complete(flash_next) -> None:
    found = inspect_checkpoint(flash_next)
    assert (found.family, found.complete) == ("flash-next", True)
    assert {slot.part for slot, _ in found.fits} == {Part.TEXT, Part.MTP}


@pytest.mark.parametrize(
    "missing",
    [
        "model.layers.1.ple.ple_embedding.ngram_embedding.shard_3.weight",
        "model.layers.3.self_attn.indexer.k_layernorm.weight",
        "model.layers.0.mlp_hyper_connection.block_inject_weight.weight",
    ],
)
def test_what_is_missing_is_named(flash_next, tmp_path, missing) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(flash_next, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors[missing]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=missing):
        require_parts(folder, {Part.TEXT})
