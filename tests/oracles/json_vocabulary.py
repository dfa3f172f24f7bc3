"""A vocabulary in which JSON is written in few tokens: every byte, frequent pieces, parts of characters, one end."""

from __future__ import annotations

from infernix_plugin.matching import TokenDomain

LONGER = r"""{" "} ": ", }, [{ ]] [[ "" \u \" 00 12 1. e- -1 true false null ab aa foo bar abc "a a" a": é 中 20 :00"""
TEXTS = [*LONGER.split(), '": ', '", "', ", ", "  ", "\n "]
HALVES = [b"\xc3", b"\xa9", b"\xe4\xb8", b'\xad"', b"\xf0\x9f", b"\x98\x80"]
PIECES = [bytes([byte]) for byte in range(256)] + [text.encode() for text in TEXTS] + HALVES
STOP = len(PIECES)
PREFERRED = {PIECES.index(text.encode()) for text in [*'{}[],:"0123456789ab', *TEXTS]} | {STOP}
"""Tokens with which an output has structure; raw bytes alone would be one long string."""
DOMAIN = TokenDomain([*PIECES, b"<end>"], control={"<end>": STOP}, stop=[STOP])
