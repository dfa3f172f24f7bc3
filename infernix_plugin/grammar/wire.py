"""A grammar as plain JSON values, to be sent to another process of this package.

Nodes are numbered from the leaves on, so neither side recurses and what was shared stays shared. A lexeme is a text of
its own: equal ones, which are in most grammars, are read once and then are the same object again.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import (
    Alt,
    And,
    CharSet,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Remark,
    Repeat,
    Seq,
    TokenSet,
    Words,
    children,
)
from infernix_plugin.grammar.places import Place, UniqueItems

_KEPT_LEXEMES = 4096
_KEPT_LETTERS = 1 << 16
"""Longest text of a lexeme that is kept."""

Cell = list[Any]
"""One node: a letter for its type, and its fields, with other nodes by their number."""

_lock = threading.Lock()
_lexemes: OrderedDict[str, Lexeme] = OrderedDict()
_texts: dict[int, tuple[Lexeme, str]] = {}
"""Of lexemes that grammars share."""


def packed_rules(rules: Mapping[str, Node]) -> dict[str, Any]:
    """Rules as JSON values."""
    cells, lexemes = _Cells(), _Lexemes()
    bodies = {name: cells.add(body, lexemes) for name, body in rules.items()}
    return {"cells": cells.made, "rules": bodies, "lexemes": lexemes.texts}


def unpacked_rules(values: Mapping[str, Any]) -> dict[str, Node]:
    """Inverse of :func:`packed_rules`."""
    lexemes = [_lexeme(text) for text in values["lexemes"]]
    nodes = _nodes(values["cells"], lexemes)
    return {name: nodes[place] for name, place in values["rules"].items()}


def packed_unique(unique: UniqueItems) -> dict[str, Any]:
    """Watched places as JSON values."""
    places = [{**asdict(place), "roomy": sorted(place.roomy)} for place in unique.places]
    return {"places": places, "opening": unique.opening, "separator": unique.separator}


def unpacked_unique(values: Mapping[str, Any]) -> UniqueItems:
    """Inverse of :func:`packed_unique`."""
    places = tuple(
        Place(**{**place, "roomy": frozenset(place["roomy"]), "positions": tuple(place["positions"])})
        for place in values["places"]
    )
    return UniqueItems(places, values["opening"], values["separator"])


def packed_remarks(remarks: Iterable[Remark]) -> list[list[str]]:
    """Remarks as JSON values."""
    return [[remark.message, remark.location] for remark in remarks]


def unpacked_remarks(values: Iterable[list[str]]) -> tuple[Remark, ...]:
    """Inverse of :func:`packed_remarks`."""
    return tuple(Remark(message, location) for message, location in values)


class _Cells:
    """Numbered nodes. They are known by identity: to compare them would walk through them again and again."""

    def __init__(self) -> None:
        self.made: list[Cell] = []
        self._places: dict[int, int] = {}

    def add(self, node: Node, lexemes: _Lexemes | None) -> int:
        """Number a tree from its leaves on; return the number of ``node``. Inside a lexeme, ``lexemes`` is ``None``."""
        pending = [node]
        places = self._places
        while pending:
            current = pending[-1]
            if id(current) in places:
                pending.pop()
                continue
            if lexemes is not None and isinstance(current, Lexeme):
                cell = ["x", lexemes.place(current)]
            else:
                below = children(current)
                missing = [child for child in below if id(child) not in places]
                if missing:
                    pending += missing
                    continue
                cell = _cell(current, [places[id(child)] for child in below])
            if len(self.made) % 64 == 0:
                budget.checkpoint()
            pending.pop()
            places[id(current)] = len(self.made)
            self.made.append(cell)
        return places[id(node)]


class _Lexemes:
    """The texts of a grammar's lexemes."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[int, int] = {}

    def place(self, lexeme: Lexeme) -> int:
        """The number of a lexeme's text."""
        place = self._places.get(id(lexeme))
        if place is None:
            place = self._places[id(lexeme)] = len(self.texts)
            self.texts.append(_text(lexeme))
        return place


def _cell(node: Node, below: list[int]) -> Cell:
    match node:
        case Literal(text):
            return ["l", text]
        case Words(texts):
            return ["w", *texts]
        case CharSet(ranges):
            return ["c", *ranges]
        case TokenSet(ids, exclude):
            return ["t", exclude, *ids]
        case Ref(name):
            return ["f", name]
        case Repeat(_, minimum, maximum):
            return ["r", below[0], minimum, maximum]
        case Seq():
            return ["s", *below]
        case Alt():
            return ["a", *below]
        case And():
            return ["i", *below]
        case Not():
            return ["n", *below]
        case Lexeme():
            return ["m", *below]


def _nodes(cells: Iterable[Cell], lexemes: list[Lexeme]) -> list[Node]:
    nodes: list[Node] = []
    for kind, *parts in budget.watched(cells):
        nodes.append(_node(kind, parts, nodes, lexemes))
    return nodes


def _node(kind: str, parts: list[Any], nodes: list[Node], lexemes: list[Lexeme]) -> Node:
    match kind:
        case "l":
            return Literal(parts[0])
        case "s":
            return Seq(tuple([nodes[place] for place in parts]))
        case "a":
            return Alt(tuple([nodes[place] for place in parts]))
        case "f":
            return Ref(parts[0])
        case "x":
            return lexemes[int(parts[0])]
        case "r":
            return Repeat(nodes[parts[0]], parts[1], parts[2])
        case "c":
            return CharSet(tuple([(low, high) for low, high in parts]))
        case "w":
            return Words(tuple(parts))
        case "t":
            return TokenSet(tuple(parts[1:]), parts[0])
        case "i":
            return And(tuple([nodes[place] for place in parts]))
        case "n":
            return Not(nodes[parts[0]])
        case "m":
            return Lexeme(nodes[parts[0]])
    raise ValueError(f"there is no node of the kind {kind!r}")


def _text(lexeme: Lexeme) -> str:
    known = _texts.get(id(lexeme))
    if known is not None and known[0] is lexeme:
        return known[1]
    cells = _Cells()
    cells.add(lexeme.item, None)
    text = json.dumps(cells.made, separators=(",", ":"))
    if len(text) <= _KEPT_LETTERS:
        if len(_texts) >= _KEPT_LEXEMES:
            _texts.clear()
        _texts[id(lexeme)] = lexeme, text  # which keeps the lexeme's identity from being used again
    return text


def _lexeme(text: str) -> Lexeme:
    with _lock:
        known = _lexemes.get(text)
        if known is not None:
            _lexemes.move_to_end(text)
            return known
    made = Lexeme(_nodes(json.loads(text), [])[-1])
    if len(text) <= _KEPT_LETTERS:
        with _lock:
            made = _lexemes.setdefault(text, made)
            while len(_lexemes) > _KEPT_LEXEMES:
                _lexemes.popitem(last=False)
    return made
