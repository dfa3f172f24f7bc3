"""The text tokens of a vocabulary by their bytes, and those that can end one JSON item and begin another."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infernix_plugin.matching.companions.position import SPACE, Crossing
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain

Ids = NDArray[np.int64]

_FEW = 8  # one by one is faster
_DEEP = 3
"""Tokens that close so many containers, or more, are kept together."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_WHOLE_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
# In a skeleton a string that ends or that begins is ", a whole one is $, and there is no whitespace.
_STRUCTURE = re.compile(rb'[][{},:0-9+.eEtrufalsn"$-]*')
_IMPOSSIBLE = re.compile(rb'[,:\[{][,:]|[,:][\]}]|[\[{][\]}][\[{"$]|["$]["$]')
_OPENING = re.compile(rb"\[[^\]].*,")
_VALUE = re.compile(rb"[$\]}0-9]|true|false|null")  # a number may have ended


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
        texts = {token: domain.token_bytes(token) for token in domain.ids_of_class(TokenClass.TEXT)}
        # These before the pieces are sorted: they lie in memory as they are numbered, and other orders take far longer.
        single = {piece[0]: token for token, piece in texts.items() if len(piece) == 1}
        readings = [(token, reading) for token, piece in texts.items() if b"," in piece for reading in _readings(piece)]
        ordered = sorted(texts, key=texts.__getitem__)
        self._ids: Ids = np.array(ordered, dtype=np.int64)
        self._pieces = [texts[token] for token in ordered]
        self._children: dict[Node, dict[int, Node]] = {}
        self._spaced: dict[Node, Spaced] = {}
        self.root = Node(0, len(texts), 0)
        self.mask_words = domain.mask_words
        self._crossing = {
            (reach, least): Tokens.of(readings, reach, least) for reach in range(_DEEP + 1) for least in Crossing
        }
        self._single_bytes = np.array(list(single), dtype=np.uint8)
        self._single_ids: Ids = np.array(list(single.values()), dtype=np.int64)
        self._rare = [node for byte, node in self.children(self.root).items() if byte not in single]

    def crossing(self, reach: int, least: Crossing) -> Tokens:
        """The tokens that may hold a comma after the end of an item.

        Args:
            reach: how many containers have to be closed before such a comma, unless the array begins inside the token.
            least: what they hold behind it.
        """
        return self._crossing[min(reach, _DEEP), least]

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
class _Reading:
    """One way to read a token that holds a comma between two parts of a JSON text."""

    closes: int
    """How many containers it closes, at most."""
    opens: bool
    """A comma follows an item of an array that it opens."""
    crossing: Crossing


class Tokens:
    """A set of tokens that is looked up often."""

    def __init__(self, ids: list[int]) -> None:
        """Keep the ids ready to be looked up."""
        self._ids: Ids = np.array(ids, dtype=np.int64)
        self._words = self._ids >> 5
        self._shifts = (self._ids & 31).astype(np.int32)
        self._few = ids if len(ids) <= _FEW else None

    @classmethod
    def of(cls, readings: list[tuple[int, _Reading]], reach: int, least: Crossing) -> Tokens:
        """Those with a reading that goes so far and holds so much."""
        found = {
            token
            for token, reading in readings
            if reading.opens or (reading.closes >= reach and reading.crossing >= least)
        }
        return cls(sorted(found))

    def within(self, row: Bitset) -> list[int]:
        """Which of them are in ``row``."""
        if self._few is not None:
            return [token for token in self._few if row.item(token >> 5) >> (token & 31) & 1]
        bits = (row[self._words] >> self._shifts) & 1
        return self._ids[bits.nonzero()].tolist() if bits.any() else []


def _readings(piece: bytes) -> Iterator[_Reading]:
    """The ways in which a token may hold a comma between two parts of a JSON text."""
    beginnings = [(b"", piece)]
    for skipped in (b"", b"\\"):  # inside a string, and inside an escape sequence there
        rest = _REST_OF_STRING.match(skipped + piece)
        if rest:
            beginnings.append((b'"', (skipped + piece)[rest.end() :]))
    for ended, rest_of_piece in beginnings:
        skeleton = ended + _STRING.sub(_marked, rest_of_piece).translate(None, SPACE)
        if b"," in skeleton and _STRUCTURE.fullmatch(skeleton) and not _IMPOSSIBLE.search(skeleton):
            closes = sum(skeleton.count(bracket) for bracket in (b"]", b"}"))
            behind = skeleton.partition(b",")[2]
            crossing = Crossing.BEGINNING if behind else Crossing.ANY
            yield _Reading(
                closes, bool(_OPENING.search(skeleton)), Crossing.COMPLETING if _VALUE.search(behind) else crossing
            )


def _marked(string: re.Match[bytes]) -> bytes:
    """A string in a skeleton: whole, or begun."""
    return b"$" if _WHOLE_STRING.fullmatch(string[0]) else b'"'
