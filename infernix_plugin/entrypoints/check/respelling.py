"""Another way to write a refused JSON instance: a schema's grammar fixes the order of keys and how values are spelled.

What is found is proven by the matcher, so it needs no second opinion; that nothing is found proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.engines.base import Matcher

MAX_STEPS = 20_000
"""Pieces of text that a search tries before it gives up."""

MAX_DIGITS = 400
"""Longest number that is written out."""

Step = tuple[Matcher, str]


class _Number(str):
    """A number as it is written."""


class _Spent(Exception):
    """The search has tried enough."""


def respelled(compiled: CompiledGrammar, schema: str, instance: bytes) -> str | None:
    """An allowed compact text of the same JSON value, with keys in any order, or ``None`` if none was found.

    Any order is tried, the one in which ``schema`` declares the keys first.
    """
    try:
        value = json.loads(
            instance,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse,
            object_pairs_hook=_distinct,
        )
        for matcher, text in _Search(_ranks(schema)).value(compiled.new_matcher(), value):
            if matcher.can_end():
                return text
    except (ValueError, RecursionError, ConstraintTooLarge, _Spent):
        pass
    return None


class _Search:
    """Depth first. Every method yields the positions behind what it wrote, with the text."""

    def __init__(self, ranks: dict[str, int]) -> None:
        self._ranks = ranks
        self._steps = 0

    def value(self, matcher: Matcher, value: Any) -> Iterator[Step]:
        match value:
            case dict():
                members = sorted(value.items(), key=lambda member: self._ranks.get(member[0], len(self._ranks)))
                yield from self._members(matcher, "{", members)
            case list():
                yield from self._items(matcher, "[", value)
            case _Number():
                for text in _spellings(value):
                    yield from self._text(matcher, text)
            case _:
                yield from self._text(matcher, json.dumps(value, ensure_ascii=False))

    def _members(self, matcher: Matcher, before: str, members: list[tuple[str, Any]]) -> Iterator[Step]:
        if not members:
            yield from self._text(matcher, "{}" if before == "{" else "}")
        for index, (name, value) in enumerate(members):
            key = f"{before}{json.dumps(name, ensure_ascii=False)}:"
            rest = members[:index] + members[index + 1 :]
            for at_value, _ in self._text(matcher, key):
                for at_end, text in self.value(at_value, value):
                    for last, tail in self._members(at_end, ",", rest):
                        yield last, key + text + tail

    def _items(self, matcher: Matcher, before: str, items: list[Any]) -> Iterator[Step]:
        if not items:
            yield from self._text(matcher, "[]" if before == "[" else "]")
            return
        for at_item, _ in self._text(matcher, before):
            for at_end, text in self.value(at_item, items[0]):
                for last, tail in self._items(at_end, ",", items[1:]):
                    yield last, before + text + tail

    def _text(self, matcher: Matcher, text: str) -> Iterator[Step]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _Spent
        data = text.encode("utf-8")
        behind = matcher.fork()
        if behind.accept_bytes(data) == len(data):
            yield behind, text


def _ranks(schema: str) -> dict[str, int]:
    """Every name under a ``properties``, by its first place in the schema."""
    ranks: dict[str, int] = {}
    pending = [json.loads(schema)]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            declared = node.get("properties")
            for name in declared if isinstance(declared, dict) else ():
                ranks.setdefault(name, len(ranks))
            pending.extend(reversed(node.values()))
        elif isinstance(node, list):
            pending.extend(reversed(node))
    return ranks


def _spellings(number: _Number) -> Iterator[str]:
    """The number as it is, and as a plain decimal."""
    yield str(number)
    exact = Decimal(number)
    if abs(exact.adjusted()) <= MAX_DIGITS:
        plain = f"{exact.normalize():f}" if len(number) <= 28 else format(exact, "f")
        if plain != number:
            yield plain


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
