"""The vocabulary as raw bytes: what every token writes, and what kind of token it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bitset = NDArray[np.int32]


class TokenClass(IntEnum):
    """What a token id stands for. Only :attr:`TEXT` tokens match characters of a grammar."""

    UNUSED = 0
    """Cannot be generated: padding of the embedding matrix, an empty piece, an image, video or audio placeholder."""
    TEXT = 1
    """Matches by its bytes."""
    CONTROL = 2
    """Matches by its id only, never by its spelling."""
    STOP = 3
    """Ends the output."""


def bitset(members: Iterable[int] | NDArray[np.bool_], vocab_size: int) -> Bitset:
    """Pack a set of token ids into ``ceil(vocab_size / 32)`` int32 words: bit ``id % 32`` of word ``id // 32``.

    Args:
        members: ids below ``vocab_size``, or one boolean per id.
        vocab_size: how many ids there are; the bits past it in the last word are zero.
    """
    flags = np.zeros((vocab_size + 31) // 32 * 32, dtype=np.bool_)
    if isinstance(members, np.ndarray):
        flags[:vocab_size] = members
    else:
        flags[list(members)] = True
    return np.packbits(flags, bitorder="little").view("<i4").astype(np.int32, copy=False)


class TokenDomain:
    """An immutable vocabulary. Ids run from 0 to ``vocab_size - 1``.

    Attributes:
        vocab_size: the number of ids of the model's output, padding included.
        mask_words: int32 words of one mask row, ``ceil(vocab_size / 32)``.
        stop_ids: the ids that end an output, ascending.
        stop_bits: those ids as a bitset of ``mask_words`` words; read-only, like the other bitsets.
        generable_bits: every text and control token; stop tokens are not in it.
        no_bits: the bytes of an empty bitset, to compare with.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        control: Mapping[str, int] | None = None,
        stop: Iterable[int] = (),
        unused: Iterable[int] = (),
        vocab_size: int | None = None,
    ) -> None:
        """Describe a vocabulary.

        Args:
            pieces: the raw bytes of each id; an empty piece cannot be generated.
            control: markers by their text, including those that are also in ``stop`` or ``unused``.
            stop: ids that end the output.
            unused: further ids that must never be generated.
            vocab_size: pads or cuts the vocabulary to the width of the model's logits.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        size = len(pieces) if vocab_size is None else vocab_size
        markers = {text: token for text, token in (control or {}).items() if token < size}
        self.vocab_size = size
        self.mask_words = (size + 31) // 32
        self.no_bits = bytes(4 * self.mask_words)
        self._pieces = tuple(pieces[:size]) + (b"",) * (size - len(pieces))
        self._markers = markers
        classes = np.full(size, TokenClass.TEXT, dtype=np.uint8)
        classes[[token for token, piece in enumerate(self._pieces) if not piece]] = TokenClass.UNUSED
        for ids, kind in (
            (markers.values(), TokenClass.CONTROL),
            (unused, TokenClass.UNUSED),
            (stop, TokenClass.STOP),
        ):
            for token in ids:
                if not 0 <= token < size:
                    raise ValueError(f"token id {token} is outside the vocabulary of {size} ids")
                classes[token] = kind
        self._classes = classes.tobytes()
        self.stop_ids: tuple[int, ...] = tuple(np.flatnonzero(classes == TokenClass.STOP).tolist())
        self._stops = frozenset(self.stop_ids)
        self.stop_bits = bitset(classes == TokenClass.STOP, size)
        self.generable_bits = bitset((classes == TokenClass.TEXT) | (classes == TokenClass.CONTROL), size)
        for bits in (self.stop_bits, self.generable_bits):
            bits.flags.writeable = False
        self._byte_tokens: dict[int, int] = {}
        for token, piece in enumerate(self._pieces):
            if len(piece) == 1 and classes[token] == TokenClass.TEXT:
                self._byte_tokens.setdefault(piece[0], token)

    @classmethod
    def from_pretrained(
        cls,
        path_or_tokenizer: Any,
        *,
        vocab_size: int | None = None,
        extra_stop_ids: Iterable[int] = (),
    ) -> TokenDomain:
        """Read a Hugging Face tokenizer.

        Stop ids are the union of the tokenizer's end-of-sequence token, the ``eos_token_id`` of the
        ``generation_config.json`` beside it, and ``extra_stop_ids``.

        Args:
            path_or_tokenizer: a directory or model name for ``AutoTokenizer``, or a loaded tokenizer (subclasses such
                as vLLM's cached tokenizers included).
            vocab_size: the model's vocabulary size when it is not the tokenizer's.
            extra_stop_ids: further ids that end an output.

        Raises:
            ValueError: the tokenizer's pieces cannot be read as bytes (WordPiece, for example).
            CheckpointError: the directory has no vocabulary.
        """
        from infernix_plugin.matching import pretrained

        tokenizer = pretrained.load(path_or_tokenizer)
        vocabulary = pretrained.read(tokenizer)
        size = max(len(vocabulary.pieces), vocab_size or 0) if vocab_size is None else vocab_size
        stop = {*vocabulary.stop, *extra_stop_ids}
        return cls(
            vocabulary.pieces,
            control=vocabulary.markers,
            stop=(token for token in stop if token < size),
            unused=(token for token in vocabulary.unused if token < size),
            vocab_size=size,
        )

    @property
    def markers(self) -> Mapping[str, int]:
        """The ids of all markers (control, stop or unused) by their text."""
        return self._markers

    def token_bytes(self, token: int) -> bytes:
        """What the token writes; for a control token its spelling, for an unused id the empty string."""
        return self._pieces[token]

    def written(self, token: int) -> bytes:
        """The bytes by which a text token matches; empty for every other token."""
        return self._pieces[token] if self._classes[token] == TokenClass.TEXT else b""

    def token_class(self, token: int) -> TokenClass:
        """The class of an id."""
        return TokenClass(self._classes[token])

    def control_id(self, text: str) -> int | None:
        """The id of the marker (control, stop or unused) with exactly this text, or ``None``."""
        return self._markers.get(text)

    def byte_token(self, byte: int) -> int | None:
        """The smallest text token that writes exactly this one byte, or ``None``."""
        return self._byte_tokens.get(byte)

    def is_stop(self, token: int) -> bool:
        """Whether the token, which may be any integer, ends an output."""
        return token in self._stops

    def is_control(self, token: int) -> bool:
        """Whether the token, which may be any integer, is a control token."""
        return 0 <= token < self.vocab_size and self._classes[token] == TokenClass.CONTROL

    def is_generable(self, token: int) -> bool:
        """Whether the token, which may be any integer, is a text or control token."""
        return 0 <= token < self.vocab_size and self._classes[token] in _GENERABLE

    def ids_of_class(self, kind: TokenClass) -> list[int]:
        """All ids of one class, ascending."""
        return [token for token, value in enumerate(self._classes) if value == kind]


_GENERABLE = (TokenClass.TEXT, TokenClass.CONTROL)
