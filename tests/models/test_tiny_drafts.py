"""Tiny DFlash and DFlash2 drafts: the same bytes from the same seed, shapes that fit the target, useful statistics."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.tiny import checkpoint, corpus, make_tiny_draft, make_tiny_model

LAYER = {
    "input_layernorm.weight": (256,),
    "mlp.down_proj.weight": (256, 384),
    "mlp.gate_proj.weight": (384, 256),
    "mlp.up_proj.weight": (384, 256),
    "post_attention_layernorm.weight": (256,),
    "self_attn.k_norm.weight": (64,),
    "self_attn.k_proj.weight": (128, 256),
    "self_attn.o_proj.weight": (256, 256),
    "self_attn.q_norm.weight": (64,),
    "self_attn.q_proj.weight": (256, 256),
    "self_attn.v_proj.weight": (128, 256),
}
CONVOLUTION = {"base_kernel": (2, 2, 256), "kernel_projection.weight": (16, 256)}


@pytest.fixture(scope="module", params=["dflash", "dflash2"])
def draft(request, tmp_path_factory) -> tuple[str, Path]:
    directory = tmp_path_factory.mktemp("drafts") / request.param
    make_tiny_draft(directory, request.param)
    return request.param, directory


def test_the_command_writes_the_same_bytes(draft, tmp_path) -> None:
    kind, directory = draft
    code = "from infernix_plugin.entrypoints.cli import main; main()"
    command = [sys.executable, "-c", code, "make-tiny-model", str(tmp_path), "--draft", kind]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    ours, theirs = ({path.name: path.read_bytes() for path in where.iterdir()} for where in (directory, tmp_path))
    assert ours == theirs
    assert sorted(ours) == ["config.json", "model.safetensors"]


def test_names_and_shapes(draft, tiny_model) -> None:
    kind, directory = draft
    target = json.loads((tiny_model / "config.json").read_text())
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == [{"dflash": "DFlashDraftModel", "dflash2": "DFlash2DraftModel"}[kind]]
    assert all(
        config[name] == target[name] for name in ("vocab_size", "hidden_size", "num_key_value_heads", "head_dim")
    )
    layer = dict(LAYER)
    expected = {"fc.weight": (256, 512), "hidden_norm.weight": (256,), "norm.weight": (256,)}
    if kind == "dflash2":
        for block in ("attention_conv", "mlp_conv"):
            layer |= {f"{block}.{name}": shape for name, shape in CONVOLUTION.items()}
        expected |= {
            "candidate_selector.predecessor_codebook": (config["vocab_size"], 64),
            "candidate_selector.successor_codebook": (config["vocab_size"], 64),
            "candidate_selector.hidden_projection.weight": (64, 256),
        }
    for index in range(config["num_hidden_layers"]):
        expected |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    weights = load_file(directory / "model.safetensors")
    assert {name: tuple(value.shape) for name, value in weights.items()} == expected
    assert all(value.dtype == torch.bfloat16 and bool(value.isfinite().all()) for value in weights.values())


def test_the_mask_token_is_one_that_no_text_contains(draft, tiny_model) -> None:
    config = json.loads((draft[1] / "config.json").read_text())
    added = json.loads((tiny_model / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert added[str(config["dflash_config"]["mask_token_id"])]["content"] == "<|fim_pad|>"


def test_the_selector_tells_what_follows_from_what_does_not(tmp_path, tiny_model) -> None:
    make_tiny_draft(tmp_path, "dflash2", seed=3)
    weights = {name: value.float() for name, value in load_file(tmp_path / "model.safetensors").items()}
    encode = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).encode
    ids = torch.tensor(encode("\n\n".join(turn.reply for turn in corpus.conversations())).ids)
    before = weights["candidate_selector.predecessor_codebook"][ids[:-1]]
    after = weights["candidate_selector.successor_codebook"][ids[1:]]
    real = (before * after).sum(1)
    shuffled = (before * after.roll(1000, 0)).sum(1)
    assert float((real > shuffled).float().mean()) > 0.8


def test_what_cannot_be_written_leaves_the_directory_as_it_was(tmp_path, monkeypatch) -> None:
    before = f'{{"{checkpoint.MARK}": true}}'
    (tmp_path / "config.json").write_text(before)
    write = checkpoint._write_weights

    def full(path, weights):
        write(path, {})
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_weights", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        make_tiny_draft(tmp_path, "dflash")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("config.json", before)]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize(
    "text", ['{"architectures": ["LlamaForCausalLM"]}', "no JSON", '{"infernix_tiny_model": "no"}']
)
def test_another_model_stays_as_it_is(tmp_path, monkeypatch, name, text) -> None:
    monkeypatch.setattr(checkpoint, "train", lambda: pytest.fail("said after seconds of work"))
    (tmp_path / name).write_text(text)
    for make in (lambda: make_tiny_model(tmp_path), lambda: make_tiny_draft(tmp_path, "dflash")):
        with pytest.raises(CheckpointError, match="has another model, which stays as it is; choose another directory"):
            make()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, text)]


def test_a_draft_that_was_written_here_is_written_again(tmp_path) -> None:
    make_tiny_draft(tmp_path, "dflash", seed=1)
    make_tiny_draft(tmp_path, "dflash")
    make_tiny_draft(tmp_path / "another", "dflash")
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "another" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("other", ["model.safetensors.index.json", "model-00001-of-00002.safetensors"])
def test_weights_of_another_model_are_not_joined(tmp_path, monkeypatch, other) -> None:
    monkeypatch.setattr(checkpoint, "train", lambda: pytest.fail("said after seconds of work"))
    (tmp_path / other).write_text("")
    for make in (lambda: make_tiny_model(tmp_path), lambda: make_tiny_draft(tmp_path, "dflash")):
        with pytest.raises(CheckpointError, match=f"has weights of another model: {other}; choose another directory"):
            make()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_tiny_model(tmp_path / "file")
