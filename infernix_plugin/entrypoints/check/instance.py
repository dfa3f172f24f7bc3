"""An instance against a compiled constraint: where it is refused, and what was allowed there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from infernix_plugin.entrypoints.check.vocabulary import Vocabulary
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.session import MaskState

MAX_EXAMPLES = 12
MAX_RANGES = 16
REST = "..."


@dataclass(frozen=True)
class Token:
    """One token: its place among the tokens of the instance, its id and the text it writes."""

    index: int
    id: int
    text: str


@dataclass(frozen=True)
class Allowed:
    """What may come after a prefix of the instance."""

    end: bool
    """Whether the output may end there."""
    tokens: int
    """How many tokens may come next, stop tokens not counted."""
    characters: list[str]
    """Single characters and ranges that they begin with, at most :data:`MAX_RANGES`; ``...`` stands for the rest."""
    examples: list[str]
    """The first of them in the order of their ids, at most :data:`MAX_EXAMPLES`."""


@dataclass(frozen=True)
class Refusal:
    """The first byte, and the token that holds it, with which no member of the language goes on.

    ``byte`` counts from 0 and is the length of the instance if what is refused is its end; then there is no token, and
    ``text`` is empty. ``line`` and ``column`` count from 1, columns in characters. ``text`` is the character, or
    ``\\xNN`` for a byte that is none.
    """

    byte: int
    line: int
    column: int
    text: str
    token: Token | None
    allowed: Allowed


def refusal_of(compiled: CompiledGrammar, vocabulary: Vocabulary, data: bytes) -> Refusal | None:
    """Walk the instance byte by byte, then token by token.

    Returns:
        ``None`` if the instance is a member of the language.

    Raises:
        ConstraintTooLarge: the engine gave up on the way.
    """
    matcher = compiled.new_matcher()
    legal = matcher.accept_bytes(data)
    if legal == len(data) and matcher.can_end():
        return None
    start = _character_start(data, legal)
    before = data[:start].decode("utf-8", "replace")
    return Refusal(
        byte=legal,
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
        text=_first_character(data[start:]),
        token=_refused_token(compiled, vocabulary, data) if legal < len(data) else None,
        allowed=_allowed(compiled, data[:start]),
    )


def _first_character(data: bytes) -> str:
    """The character that the bytes begin with, or the first byte if it is none."""
    character = data[: _width(data[0])] if data else b""
    try:
        return character.decode("utf-8")
    except UnicodeDecodeError:
        return readable(data[:1])


def _character_start(data: bytes, offset: int) -> int:
    while 0 < offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def _refused_token(compiled: CompiledGrammar, vocabulary: Vocabulary, data: bytes) -> Token | None:
    session = compiled.session()
    for index, token in enumerate(vocabulary.spell(data) or ()):
        if not session.accept(token):
            if session.engine_error is not None:
                raise session.engine_error
            return Token(index, token, readable(compiled.domain.token_bytes(token)))
    return None


def _allowed(compiled: CompiledGrammar, prefix: bytes) -> Allowed:
    domain = compiled.domain
    session = compiled.session(prefix)
    row = np.zeros(domain.mask_words, dtype=np.int32)
    if session.fill_mask(row) is MaskState.DEAD_END:
        if session.engine_error is not None:
            raise session.engine_error
        return Allowed(end=False, tokens=0, characters=[], examples=[])
    ids = legal_tokens(row, domain)
    return Allowed(
        end=session.complete,
        tokens=len(ids),
        characters=_first_characters(domain, ids),
        examples=[readable(domain.token_bytes(token)) for token in ids[:MAX_EXAMPLES]],
    )


def legal_tokens(row: np.ndarray[tuple[int], np.dtype[np.int32]], domain: TokenDomain) -> list[int]:
    """The ids that a mask row allows, without stop tokens, ascending."""
    allowed = row & ~domain.stop_bits
    bits = np.unpackbits(allowed.view(np.uint8), bitorder="little")[: domain.vocab_size]
    ids: list[int] = np.flatnonzero(bits).tolist()
    return ids


def readable(piece: bytes) -> str:
    """Bytes as text; what is not UTF-8 is shown as ``\\xNN``."""
    return piece.decode("utf-8", "backslashreplace")


def _first_characters(domain: TokenDomain, ids: list[int]) -> list[str]:
    points: set[int] = set()
    lone: set[int] = set()
    markers: list[str] = []
    for token in ids:
        piece = domain.token_bytes(token)
        if domain.token_class(token) is TokenClass.CONTROL:
            markers.append(readable(piece))
            continue
        try:
            points.add(ord(piece[: _width(piece[0])].decode("utf-8")))
        except UnicodeDecodeError:
            lone.add(piece[0])
    shown = [*_ranges(sorted(points)), *_byte_ranges(sorted(lone)), *markers]
    return shown if len(shown) <= MAX_RANGES else [*shown[: MAX_RANGES - 1], REST]


def _width(lead: int) -> int:
    """Bytes of the UTF-8 character that ``lead`` begins."""
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _ranges(points: list[int]) -> list[str]:
    """Ascending code points; runs of three and more letters or digits are one range."""
    shown: list[str] = []
    for run in _runs(points, lambda low, high: chr(low).isalnum() == chr(high).isalnum()):
        if len(run) > 2 and all(chr(point).isalnum() for point in run):
            shown.append(f"{chr(run[0])}-{chr(run[-1])}")
        else:
            shown += map(chr, run)
    return shown


def _byte_ranges(values: list[int]) -> list[str]:
    """Ascending bytes that are no characters by themselves."""
    runs = _runs(values, lambda low, high: True)
    return [rf"\x{run[0]:02x}" + (rf"-\x{run[-1]:02x}" if len(run) > 1 else "") for run in runs]


def _runs(values: list[int], together: Callable[[int, int], bool]) -> list[list[int]]:
    """Ascending integers, cut where one is missing and where two neighbours do not go together."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1 and together(value - 1, value):
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs
