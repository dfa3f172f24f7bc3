"""The text tokens of a vocabulary by their bytes, and those that can end one JSON item and begin another."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.matching.companions.position import SPACE
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain

Ids = NDArray[np.int64]

_DEEP = 3
"""Tokens that close so many containers, or more, are kept together."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_STRUCTURE = re.compile(rb'[][{},:0-9+.eEtrufalsn"-]*')
_IMPOSSIBLE = re.compile(rb"[,:\[{][,:]|[,:][\]}]|[\[{][\]}][\[{\"]|\"\"")


class Node(NamedTuple):
    """The tokens from ``start`` to ``end``, in the order of their bytes; they share the first ``depth`` bytes."""

    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class Spaced:
    """What the tokens of a node go on with: whitespace first, if any."""

    tokens: Ids
    """Tokens with nothing else."""
    branches: dict[int, list[Node]]
    """The others by the first byte that is not whitespace; that byte is the last one that the tokens share."""


class Vocabulary:
    """An index that is built at once, for its parts on first use. Safe to share: a race only does work twice."""

    def __init__(self, domain: TokenDomain) -> None:
        """Sort the text tokens of a domain."""
        texts = domain.ids_of_class(TokenClass.TEXT)
        texts.sort(key=domain.token_bytes)
        self._ids: Ids = np.array(texts, dtype=np.int64)
        self._pieces = [domain.token_bytes(token) for token in texts]
        self._children: dict[Node, dict[int, Node]] = {}
        self._spaced: dict[Node, Spaced] = {}
        self.root = Node(0, len(texts), 0)
        self.mask_words = domain.mask_words
        crossings = [
            (token, crossing)
            for token, piece in zip(texts, self._pieces, strict=True)
            if b"," in piece
            for crossing in _crossings(piece)
        ]
        self._crossing = [_tokens(crossings, closes, begins=False) for closes in range(_DEEP + 1)]
        self._beginning = [_tokens(crossings, closes, begins=True) for closes in range(_DEEP + 1)]
        single = {piece[0]: token for token, piece in zip(texts, self._pieces, strict=True) if len(piece) == 1}
        self._single_bytes = np.array(list(single), dtype=np.uint8)
        self._single_ids: Ids = np.array(list(single.values()), dtype=np.int64)
        self._rare = [node for byte, node in self.children(self.root).items() if byte not in single]

    def crossing(self, reach: int, *, begins: bool) -> Ids:
        """The tokens that may hold a comma after the end of an item, and with ``begins`` what follows it.

        Args:
            reach: how many containers have to be closed before such a comma; otherwise the array has to begin inside
                the token.
            begins: leave those out that end with the comma.
        """
        return (self._beginning if begins else self._crossing)[min(reach, _DEEP)]

    def ids(self, node: Node) -> Ids:
        """All tokens of a node."""
        return self._ids[node.start : node.end]

    def whole(self, node: Node) -> Ids:
        """The tokens of a node that have no more bytes than those that all of them share."""
        end = node.start
        while end < node.end and len(self._pieces[end]) == node.depth:
            end += 1
        return self._ids[node.start : end]

    def children(self, node: Node) -> dict[int, Node]:
        """The longer tokens of a node by their next byte."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = dict(self._split(node))
        return found

    def spaced(self, node: Node) -> Spaced:
        """The tokens of a node by what comes after a run of whitespace, which may be empty."""
        found = self._spaced.get(node)
        if found is None:
            tokens: list[Ids] = []
            branches: dict[int, list[Node]] = {}
            pending = [node]
            while pending:
                current = pending.pop()
                tokens.append(self.whole(current))
                for byte, child in self.children(current).items():
                    if byte in SPACE:
                        pending.append(child)
                    else:
                        branches.setdefault(byte, []).append(child)
            found = self._spaced[node] = Spaced(np.concatenate(tokens), branches)
        return found

    def first_bytes(self, row: Bitset) -> list[int]:
        """The bytes that the text tokens in ``row`` begin with."""
        found = self._single_bytes[allowed(row, self._single_ids)].tolist()
        # A token that begins with one of the other bytes is legal if the byte is, which no token of its own says.
        found += [self._pieces[node.start][0] for node in self._rare if allowed(row, self.ids(node)).any()]
        return [int(byte) for byte in found]

    def _split(self, node: Node) -> Iterator[tuple[int, Node]]:
        start, end, depth = node
        while start < end and len(self._pieces[start]) == depth:
            start += 1
        while start < end:
            piece = self._pieces[start]
            byte = piece[depth]
            after = end if byte == 0xFF else bisect_left(self._pieces, piece[:depth] + bytes([byte + 1]), start, end)
            yield byte, Node(start, after, depth + 1)
            start = after


def allowed(row: Bitset, ids: Ids) -> NDArray[np.bool_]:
    """Which of the tokens are in ``row``."""
    found: NDArray[np.bool_] = ((row[ids >> 5] >> (ids & 31)) & 1).astype(np.bool_)
    return found


def clear(row: Bitset, ids: Ids) -> None:
    """Take the tokens out of ``row``."""
    np.bitwise_and.at(row.view(np.uint32), ids >> 5, ~(np.uint32(1) << (ids & 31).astype(np.uint32)))


@dataclass(frozen=True, slots=True)
class _Crossing:
    closes: int
    """How many containers the token may close."""
    opens: bool
    """It may open an array."""
    begins: bool
    """Something follows a comma."""


def _crossings(piece: bytes) -> Iterator[_Crossing]:
    """The ways in which a token may hold a comma between two parts of a JSON text."""
    readings = [(b"", piece)]
    for skipped in (b"", b"\\"):  # inside a string, and inside an escape sequence there
        rest = _REST_OF_STRING.match(skipped + piece)
        if rest:
            readings.append((b'"', (skipped + piece)[rest.end() :]))
    for ended, rest_of_piece in readings:
        skeleton = ended + _STRING.sub(b'"', rest_of_piece).translate(None, SPACE)
        if b"," in skeleton and _STRUCTURE.fullmatch(skeleton) and not _IMPOSSIBLE.search(skeleton):
            closes = sum(skeleton.count(bracket) for bracket in (b"]", b"}"))
            yield _Crossing(closes, b"[" in skeleton, begins=not skeleton.endswith(b",") or skeleton.count(b",") > 1)


def _tokens(crossings: list[tuple[int, _Crossing]], closes: int, *, begins: bool) -> Ids:
    found = {
        token
        for token, crossing in crossings
        if (crossing.closes >= closes or crossing.opens) and (crossing.begins or not begins)
    }
    return np.array(sorted(found), dtype=np.int64)
