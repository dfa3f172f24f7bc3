"""The bytes of a byte-level tokenizer's text tokens, from its file alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


class ByteLevel:
    """``pieces`` maps ids of text tokens to their bytes; control tokens are not among them. ``stops`` end an output."""

    def __init__(self, model: Path) -> None:
        tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
        added = {token["id"] for token in tokenizer["added_tokens"]}
        byte_of = _alphabet()
        self.pieces = {
            token: bytes(byte_of[character] for character in piece)
            for piece, token in tokenizer["model"]["vocab"].items()
            if token not in added
        }
        self.stops: list[int] = json.loads((model / "generation_config.json").read_text())["eos_token_id"]

    def decode(self, tokens: Sequence[int]) -> bytes | None:
        """Return what the tokens write; ``None`` if one of them is no text."""
        pieces = [self.pieces.get(token) for token in tokens]
        return None if None in pieces else b"".join(piece for piece in pieces if piece is not None)


def _alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself if printable in Latin-1, else the next one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}
