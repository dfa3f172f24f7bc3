"""How a text that is not written yet would be split into tokens: what can be said before its end is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any

from infernix_plugin.matching.domain import TokenClass, TokenDomain

_KNOWN = 1 << 12
"""Texts whose tokens are remembered. What a grammar forces comes again in every output of its kind."""


class Tokenisation:
    """Splits text as the model's own tokenizer does, or by longest match where that is not possible."""

    def __init__(self, domain: TokenDomain, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        """Index the vocabulary's text tokens.

        Args:
            domain: the vocabulary.
            encode: the model's tokenizer, without special tokens. What it returns is used only if it writes exactly
                the text: some put a space first, or normalise.
        """
        self._domain = domain
        self._encode = encode
        self._ids: dict[bytes, int] = {}
        for token in domain.ids_of_class(TokenClass.TEXT):
            self._ids.setdefault(domain.token_bytes(token), token)
        self._longest = max(map(len, self._ids), default=0)
        self.split = lru_cache(_KNOWN)(self._split)

    @classmethod
    def of(cls, domain: TokenDomain, tokenizer: Any) -> Tokenisation:
        """Use a Hugging Face tokenizer; a slow one, which takes milliseconds, is not asked."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        return cls(domain, backend and (lambda text: backend.encode(text, add_special_tokens=False).ids))

    def settled(self, before: bytes, text: bytes, endings: Sequence[bytes]) -> list[int]:
        """Return the tokens of ``text`` that are the same whichever of ``endings`` follows it.

        Args:
            before: what was written last, from a token's beginning on. It decides where the tokenizer makes the
                boundary at ``text`` impossible; then ``text`` is split as if nothing came before it.
            text: what will follow.
            endings: what may come after it; one of them empty if nothing may.
        """
        found = [self._behind(before, text, ending) for ending in endings]
        return [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*found, strict=False))]

    def _behind(self, before: bytes, text: bytes, ending: bytes) -> list[int]:
        """The tokens that lie inside ``text`` altogether."""
        tokens = self.split(before + text + ending)
        ends = list(accumulate(len(self._domain.token_bytes(token)) for token in tokens))
        if before and len(before) not in ends:
            return self._behind(b"", text, ending)
        return [token for token, end in zip(tokens, ends, strict=True) if len(before) < end <= len(before) + len(text)]

    def _split(self, text: bytes) -> list[int]:
        return (self._canonical(text) if self._encode else None) or self._longest_matches(text)

    def _canonical(self, text: bytes) -> list[int] | None:
        assert self._encode is not None
        try:
            tokens = list(self._encode(text.decode()))
        except UnicodeDecodeError:
            return None
        if not all(self._domain.is_generable(token) for token in tokens):
            return None
        return tokens if b"".join(map(self._domain.token_bytes, tokens)) == text else None

    def _longest_matches(self, text: bytes) -> list[int]:
        """Split up to the first byte that no token starts with."""
        tokens: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is None:
                break
            tokens.append(self._ids[text[start:end]])
            start = end
        return tokens
