"""Writes a tiny checkpoint directory that vLLM and transformers load like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from infernix_plugin.model_executor.tiny import associations, corpus, dflash, flash_next, qwen3_5
from infernix_plugin.model_executor.tiny.tokenizer import CONTROL_TOKENS, END_OF_TEXT, END_OF_TURN, save, train

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_MULTIPLE = 64
"""Embedding and head have a multiple of this many rows, so there are ids that no token uses, as in the real model."""


Family = Literal["qwen3.5", "flash-next"]

FAMILIES: dict[Family, ModuleType] = {"qwen3.5": qwen3_5, "flash-next": flash_next}
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
        directory: existing files of the same names are replaced.
        family: which architecture.
        seed: of the weights; the tokenizer never changes.
        report: called with one line per step.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    report("training the tokenizer")
    tokenizer = train()
    save(tokenizer, directory)

    report("counting which token follows which")
    vocab_size = _rows(tokenizer)
    table = associations.count(_replies(tokenizer), vocab_size)

    report("drawing the weights")
    vocabulary = tokenizer.get_vocab()
    ids = {token: vocabulary[token] for token in CONTROL_TOKENS}
    _write_json(directory / "config.json", FAMILIES[family].config(vocab_size, ids))
    _write_json(
        directory / "generation_config.json",
        {
            "do_sample": True,
            "eos_token_id": [ids[END_OF_TURN], ids[END_OF_TEXT]],
            "pad_token_id": ids[END_OF_TEXT],
            "temperature": 1.0,
            "top_k": 20,
            "top_p": 0.95,
        },
    )
    _write_weights(directory / "model.safetensors", FAMILIES[family].tensors(table, vocab_size, seed))
    report(f"wrote {directory}")


def make_tiny_draft(
    directory: Path, draft: dflash.Draft, *, seed: int = 0, report: Callable[[str], None] = lambda line: None
) -> None:
    """Write a draft of the tiny model into ``directory`` (created if missing); it fits tiny models of every seed.

    The same seed gives byte-identical files. There is no tokenizer in it: a draft uses its target's.

    Args:
        directory: existing files of the same names are replaced.
        draft: what kind of draft.
        seed: of the weights.
        report: called with one line per step.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    report("training the tokenizer")
    tokenizer = train()
    report("counting which token follows which")
    vocab_size = _rows(tokenizer)
    table = associations.count(_replies(tokenizer), vocab_size)
    report("drawing the weights")
    mask = tokenizer.get_vocab()[dflash.MASK_TOKEN]
    _write_json(directory / "config.json", dflash.config(draft, vocab_size, mask))
    _write_weights(directory / "model.safetensors", dflash.tensors(draft, table, vocab_size, seed))
    report(f"wrote {directory}")


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
