"""Writes a tiny checkpoint directory that vLLM and transformers load like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.tiny import associations, corpus, dflash, flash_next, noise, qwen3_5, qwen3_5_moe
from infernix_plugin.model_executor.tiny.tokenizer import CONTROL_TOKENS, END_OF_TEXT, END_OF_TURN, save, train
from infernix_plugin.model_executor.weights.inspection import read_config

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_MULTIPLE = 64
"""Embedding and head have a multiple of this many rows, so there are ids that no token uses, as in the real model."""

MARK = "infernix_tiny_model"
"""Entry of ``config.json`` by which a directory that was written here is known: only such a one is written again."""

Family = Literal["qwen3.5", "qwen3.5-moe", "flash-next"]

FAMILIES: dict[Family, ModuleType] = {"qwen3.5": qwen3_5, "qwen3.5-moe": qwen3_5_moe, "flash-next": flash_next}
"""Each has ``config(vocab_size, ids)`` and ``tensors(table, vocab_size, seed)``."""


def make_tiny_model(
    directory: Path,
    *,
    family: Family = "qwen3.5",
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Write a complete text checkpoint with an MTP head into ``directory`` (created if missing), in seconds.

    Needs ``torch``, ``tokenizers`` and ``safetensors``, which vLLM brings. The same seed gives byte-identical files.

    Args:
        directory: a model that was written here before is replaced.
        family: which architecture.
        seed: of the weights; the tokenizer never changes.
        report: called with one line per step.

    Raises:
        CheckpointError: the directory has another model, which is left as it is.
        OSError: it cannot be written; nothing in it has changed.
    """
    directory = Path(directory)
    _require_room(directory)
    report("training the tokenizer")
    tokenizer = train()
    report("counting which token follows which")
    vocab_size = _rows(tokenizer)
    table = associations.count(_replies(tokenizer), vocab_size)
    report("drawing the weights")
    config = FAMILIES[family].config(vocab_size, _control_ids(tokenizer))
    _write(directory, tokenizer, config, FAMILIES[family].tensors(table, vocab_size, seed))
    report(f"wrote {directory}")


def make_random_model(
    directory: Path, *, family: Family = "qwen3.5", changes: Mapping[str, Any] | None = None, seed: int = 0
) -> None:
    """Write a checkpoint of other sizes than the tiny one's, whose output is noise (module ``noise``).

    Args:
        directory: created if missing; a model that was written here before is replaced.
        family: which architecture.
        changes: entries of ``config.json`` that differ from the tiny model's.
        seed: of the weights.
    """
    _require_room(Path(directory))
    tokenizer = train()
    config = FAMILIES[family].config(_rows(tokenizer), _control_ids(tokenizer))
    if "num_hidden_layers" in (changes or {}):
        del config["layer_types"]  # the interval between full-attention layers says it for any number of layers
    config |= dict(changes or {})
    _write(Path(directory), tokenizer, config, noise.tensors(config, seed))


def make_tiny_draft(
    directory: Path, draft: dflash.Draft, *, seed: int = 0, report: Callable[[str], None] = lambda line: None
) -> None:
    """Write a draft of the tiny model into ``directory`` (created if missing); it fits tiny models of every seed.

    The same seed gives byte-identical files. There is no tokenizer in it: a draft uses its target's.

    Args:
        directory: a model that was written here before is replaced.
        draft: what kind of draft.
        seed: of the weights.
        report: called with one line per step.
    """
    directory = Path(directory)
    _require_room(directory)
    report("training the tokenizer")
    tokenizer = train()
    report("counting which token follows which")
    vocab_size = _rows(tokenizer)
    table = associations.count(_replies(tokenizer), vocab_size)
    report("drawing the weights")
    mask = tokenizer.get_vocab()[dflash.MASK_TOKEN]
    with _staged(directory) as stage:
        _write_json(stage / "config.json", {**dflash.config(draft, vocab_size, mask), MARK: True})
        _write_weights(stage / "model.safetensors", dflash.tensors(draft, table, vocab_size, seed))
    report(f"wrote {directory}")


def _write(directory: Path, tokenizer: Tokenizer, config: dict[str, Any], weights: qwen3_5.Tensors) -> None:
    ids = _control_ids(tokenizer)
    with _staged(directory) as stage:
        save(tokenizer, stage)
        _write_json(stage / "config.json", {**config, MARK: True})
        _write_json(
            stage / "generation_config.json",
            {
                "do_sample": True,
                "eos_token_id": [ids[END_OF_TURN], ids[END_OF_TEXT]],
                "pad_token_id": ids[END_OF_TEXT],
                "temperature": 1.0,
                "top_k": 20,
                "top_p": 0.95,
            },
        )
        _write_weights(stage / "model.safetensors", weights)


def _require_room(directory: Path) -> None:
    """Make the directory, before any work, and refuse one in which something else is.

    Raises:
        CheckpointError: weights that would be loaded with the new ones, or a model that is none of these.
    """
    directory.mkdir(parents=True, exist_ok=True)
    others = {path.name for pattern in ("*.safetensors", "*.index.json") for path in directory.glob(pattern)}
    others.discard("model.safetensors")
    if others:
        raise CheckpointError(f"{directory} has weights of another model: {min(others)}; choose another directory")
    if (directory / "config.json").exists() or (directory / "model.safetensors").exists():
        try:
            is_ours = read_config(directory).get(MARK) is True
        except CheckpointError:
            is_ours = False
        if not is_ours:
            raise CheckpointError(f"{directory} has another model, which stays as it is; choose another directory")


@contextmanager
def _staged(directory: Path) -> Iterator[Path]:
    """Write files elsewhere in ``directory`` and move them there when all are written: a full disk changes nothing."""
    with TemporaryDirectory(dir=directory) as name:
        try:
            yield Path(name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(directory)) from None
        for path in Path(name).iterdir():
            path.replace(directory / path.name)


def _control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    vocabulary = tokenizer.get_vocab()
    return {token: vocabulary[token] for token in CONTROL_TOKENS}


def _rows(tokenizer: Tokenizer) -> int:
    """Return the number of rows of embedding and head."""
    return -(-int(tokenizer.get_vocab_size()) // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def _replies(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield what an assistant writes, from the opened reasoning to the end of the turn."""
    for turn in corpus.conversations():
        yield tokenizer.encode(f"<think>\n{turn.thinking}\n</think>\n\n{turn.reply}{END_OF_TURN}").ids


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _write_weights(path: Path, weights: qwen3_5.Tensors) -> None:
    import torch
    from safetensors.torch import save as serialise

    tensors = {name: torch.from_numpy(value).to(torch.bfloat16).contiguous() for name, value in weights.items()}
    path.write_bytes(serialise(tensors, metadata={"format": "pt"}))
