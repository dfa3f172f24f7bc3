"""Reading the raw bytes and the markers out of a Hugging Face tokenizer.

A vocabulary file stores pieces in a display form. Two forms are in use: byte-level BPE writes each byte as one
printable character, SentencePiece writes a space as ``▁`` and a lone byte as ``<0xNN>``. Both are undone here without
decoding to text, so pieces that are not valid UTF-8 keep their bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infernix_plugin.errors import CheckpointError, excerpt

_MARKER = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
_MEDIA = re.compile(r"image|img|video|vision|audio", re.IGNORECASE)
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"

_VOCABULARIES = (
    *("tokenizer.*", "tekken.json", "vocab*", "merges.txt"),
    *("*.model", "*.model.v*", "*.tiktoken", "*.spm", "*.bpe", "*.gguf"),
)
"""Patterns of the files that a tokenizer takes its pieces from."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a tokenizer says about its ids."""

    pieces: list[bytes]
    markers: Mapping[str, int]
    unused: frozenset[int]
    stop: frozenset[int]


def require_vocabulary(directory: Path) -> None:
    """Refuse a directory without a vocabulary: transformers makes a tokenizer of the added tokens alone of it.

    Tokenizers that take no file pass (those of bytes), and so do those that bring their own code, and what
    transformers says itself.

    Raises:
        CheckpointError: names the files that are looked for.
    """
    if any(next(directory.glob(pattern), None) for pattern in _VOCABULARIES):
        return
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    try:
        if "auto_map" in get_tokenizer_config(directory):
            return
        tokenizer = AutoTokenizer.from_pretrained(str(directory), trust_remote_code=False)
    except Exception:  # of whatever kind: who loads the tokenizer will see it, and no vocabulary is wrong by then
        return
    files = [*tokenizer.vocab_files_names.values()]
    if files and not any((directory / name).exists() for name in files):
        raise CheckpointError(
            f"the directory {excerpt(str(directory))} has no vocabulary: there is no {' or '.join(sorted(files))}"
        )


def load(path_or_tokenizer: Any) -> Any:
    """Return the tokenizer itself, or load it from a path or a model name.

    Raises:
        CheckpointError: the path is a directory without a vocabulary.
    """
    if isinstance(path_or_tokenizer, (str, Path)):
        from transformers import AutoTokenizer

        if Path(path_or_tokenizer).is_dir():
            require_vocabulary(Path(path_or_tokenizer))
        return AutoTokenizer.from_pretrained(str(path_or_tokenizer))
    return path_or_tokenizer


def read(tokenizer: Any) -> Vocabulary:
    """Collect the pieces, markers and stop ids of a tokenizer.

    Raises:
        ValueError: the form of the pieces is not known.
    """
    added: Mapping[int, Any] = tokenizer.added_tokens_decoder
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    decode = _piece_decoder(tokenizer)
    pieces = [b""] * (max([*vocabulary.values(), *added], default=-1) + 1)
    for text, token in vocabulary.items():
        pieces[token] = decode(text)
    markers: dict[str, int] = {}
    unused: set[int] = set()
    for token, entry in added.items():
        text = str(entry.content)
        if entry.special or _MARKER.fullmatch(text):
            markers[text] = token
            pieces[token] = text.encode()
            if entry.special and _MEDIA.search(text):
                unused.add(token)
        else:
            pieces[token] = text.replace(_SPACE, " ").encode() if decode is _sentencepiece else text.encode()
    return Vocabulary(pieces, markers, frozenset(unused), frozenset(_stop_ids(tokenizer)))


def _byte_alphabet() -> dict[str, int]:
    """The byte-level BPE alphabet: printable Latin-1 stands for itself, every other byte for 256, 257, ... in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _byte_level(text: str) -> bytes:
    try:
        return bytes(_ALPHABET[char] for char in text)
    except KeyError:
        return text.encode()


def _sentencepiece(text: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(_SPACE, " ").encode()


def _piece_decoder(tokenizer: Any) -> Callable[[str], bytes]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if hasattr(tokenizer, "sp_model"):
            return _sentencepiece
        raise ValueError(f"cannot read the pieces of a {type(tokenizer).__name__} as bytes; use its fast tokenizer")
    parts = {*_component_types(backend.decoder), *_component_types(backend.pre_tokenizer)}
    if "ByteLevel" in parts:
        return _byte_level
    if parts & {"ByteFallback", "Metaspace"} or "Replace" in parts:
        return _sentencepiece
    raise ValueError(f"cannot read the pieces of a {type(tokenizer).__name__} as bytes: decoder {sorted(parts)}")


def _component_types(component: Any) -> Iterable[str]:
    """The types of a decoder or pre-tokenizer and of everything nested inside it."""
    pending = [json.loads(component.__getstate__())] if component is not None else []
    while pending:
        state = pending.pop()
        yield state["type"]
        pending.extend(state.get("decoders", []))
        pending.extend(state.get("pretokenizers", []))


def _stop_ids(tokenizer: Any) -> Iterable[int]:
    if tokenizer.eos_token_id is not None:
        yield tokenizer.eos_token_id
    config = _generation_config(str(getattr(tokenizer, "name_or_path", "") or ""))
    eos = config.get("eos_token_id")
    yield from [] if eos is None else [eos] if isinstance(eos, int) else eos


def _generation_config(name: str) -> dict[str, Any]:
    """The generation configuration in the tokenizer's directory or in the local download cache; never the network."""
    if not name:
        return {}
    path = Path(name) / "generation_config.json"
    if not Path(name).is_dir():
        from transformers.utils.hub import cached_file

        found = cached_file(
            name, "generation_config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False
        )
        if found is None:
            return {}
        path = Path(found)
    if not path.is_file():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded
