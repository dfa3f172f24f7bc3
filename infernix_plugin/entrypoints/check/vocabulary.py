"""The vocabulary that a constraint is checked against, and how it spells an instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from infernix_plugin.matching.domain import TokenClass, TokenDomain

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """A token domain and the tokenizer it came from."""

    name: str
    domain: TokenDomain
    encode: Callable[[str], list[int]]
    """Text to ids, without special tokens around it."""

    def spell(self, data: bytes) -> list[int] | None:
        """Text tokens that write exactly ``data``: the tokenizer's, if they do, else the longest match at each place.

        The tokenizer's do not where it normalises the text or takes a part of it for a marker. ``None`` if there is a
        byte that no text token begins with.
        """
        try:
            tokens = self.encode(data.decode("utf-8"))
        except UnicodeDecodeError:
            tokens = []
        return tokens if self._writes(tokens, data) else self._longest_matches(data)

    def _writes(self, tokens: list[int], data: bytes) -> bool:
        return (
            all(self.domain.token_class(token) is TokenClass.TEXT for token in tokens)
            and b"".join(map(self.domain.token_bytes, tokens)) == data
        )

    def _longest_matches(self, data: bytes) -> list[int] | None:
        pieces: dict[bytes, int] = {}
        for token in self.domain.ids_of_class(TokenClass.TEXT):
            pieces.setdefault(self.domain.token_bytes(token), token)
        longest = max(map(len, pieces), default=0)
        tokens: list[int] = []
        start = 0
        while start < len(data):
            ends = range(min(len(data), start + longest), start, -1)
            end = next((end for end in ends if data[start:end] in pieces), None)
            if end is None:
                return None
            tokens.append(pieces[data[start:end]])
            start = end
        return tokens


def load_vocabulary(directory: Path | None) -> Vocabulary:
    """Read the tokenizer of a checkpoint, or train the tiny one (0.2 s), which needs no files.

    Raises:
        typer.BadParameter: the directory holds no tokenizer whose pieces can be read as bytes.
    """
    if directory is None:
        return _tiny()
    from infernix_plugin.matching import pretrained

    try:
        tokenizer = pretrained.load(directory)
        domain = TokenDomain.from_pretrained(tokenizer)
    except Exception as error:  # transformers lets through whatever a malformed file makes it stumble over
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise typer.BadParameter(f"no usable tokenizer in {directory}: {reason}", param_hint="--tokenizer") from None
    return Vocabulary(str(directory), domain, lambda text: list(tokenizer.encode(text, add_special_tokens=False)))


def _tiny() -> Vocabulary:
    from infernix_plugin.model_executor.tiny import tokenizer as tiny

    trained = tiny.train()
    ends = (trained.get_vocab()[text] for text in (tiny.END_OF_TURN, tiny.END_OF_TEXT))
    domain = TokenDomain.from_pretrained(_Loaded(trained), extra_stop_ids=ends)
    return Vocabulary("tiny", domain, lambda text: trained.encode(text, add_special_tokens=False).ids)


class _Loaded:
    """A trained tokenizer with what the token domain reads of one from transformers, whose import takes longer."""

    name_or_path = ""
    eos_token_id: int | None = None

    def __init__(self, trained: Tokenizer) -> None:
        self.backend_tokenizer = trained
        self.added_tokens_decoder: dict[int, Any] = trained.get_added_tokens_decoder()
        self.get_vocab = trained.get_vocab
