"""Random members of a grammar, drawn from the tree itself; intersections and complements by rejection."""

from __future__ import annotations

import random
from collections.abc import Mapping

from infernix_plugin.grammar.ir import Alt, And, CharSet, Grammar, Lexeme, Literal, Node, Ref, Repeat, Seq, Words
from tests.oracles.ir_matcher import in_language

_TRIES = 2000
_NEVER = 10**9


class NotSampledError(Exception):
    """Rejection found no member; that does not mean there is none."""


class Sampler:
    """Draws members of one grammar. Past ``budget`` rule expansions it takes the shortest way out."""

    def __init__(self, grammar: Grammar, rng: random.Random, budget: int = 60) -> None:
        self._grammar = grammar
        self._rng = rng
        self._budget = budget
        self._used = 0
        self._heights = _Heights(grammar.rules)

    def draw(self) -> str:
        self._used = 0
        out: list[str] = []
        self._draw(self._grammar.start, out)
        return "".join(out)

    def _draw(self, node: Node, out: list[str]) -> None:
        match node:
            case Literal(text):
                out.append(text)
            case Words(texts):
                out.append(self._rng.choice(texts))
            case CharSet(ranges):
                out.append(self._character(ranges))
            case Ref(name):
                self._used += 1
                self._draw(self._grammar.rules[name], out)
            case Lexeme(item):
                self._draw(item, out)
            case Seq(items):
                for item in items:
                    self._draw(item, out)
            case Alt(options):
                possible = [option for option in options if self._heights[option] < _NEVER]
                if self._used > self._budget:
                    lowest = min(self._heights[option] for option in possible)
                    possible = [option for option in possible if self._heights[option] == lowest]
                self._draw(self._rng.choice(possible), out)
            case Repeat(item, minimum, maximum):
                count = minimum
                if self._heights[item] < _NEVER:
                    stop = 1.0 if self._used > self._budget and self._heights[item] > 0 else 0.3
                    while (maximum is None or count < maximum) and self._rng.random() >= stop:
                        count += 1
                    if maximum is not None and maximum <= 64 and self._rng.random() < 0.1:
                        count = maximum if stop < 1 else count
                for _ in range(count):
                    self._draw(item, out)
            case And(items):
                out.append(self._rejected(items))
            case _:
                raise TypeError(f"{node!r} cannot be sampled")

    def _rejected(self, items: tuple[Node, ...]) -> str:
        sources = [item for item in items if isinstance(item, Seq | Alt | Repeat | Literal | Words | CharSet)]
        for _ in range(_TRIES):
            source = self._rng.choice(sources)
            part: list[str] = []
            self._draw(source, part)
            text = "".join(part)
            if all(item is source or in_language(item, text) for item in items):
                return text
        raise NotSampledError(items)

    def _character(self, ranges: tuple[tuple[int, int], ...]) -> str:
        low, high = self._rng.choice(ranges)
        if self._rng.random() < 0.7:
            high = min(high, max(low, 0x7E))
        return chr(self._rng.choice([low, high, self._rng.randint(low, high)]))


class _Heights:
    """For every node the least nesting of rules in one of its derivations."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = dict.fromkeys(rules, _NEVER)
        self._known: dict[int, int] = {}
        for _ in rules:
            self._known = {}
            found = {name: min(_NEVER, 1 + self[body]) for name, body in rules.items()}
            if found == self._rules:
                break
            self._rules = found
        self._known = {}

    def __getitem__(self, node: Node) -> int:
        if id(node) not in self._known:
            self._known[id(node)] = self._of(node)
        return self._known[id(node)]

    def _of(self, node: Node) -> int:
        match node:
            case Ref(name):
                return self._rules[name]
            case Seq(items) | And(items):
                return max((self[item] for item in items), default=0)
            case Alt(options):
                return min((self[option] for option in options), default=_NEVER)
            case Repeat(item, minimum):
                return 0 if minimum == 0 else self[item]
            case Lexeme(item):
                return self[item]
            case CharSet(ranges):
                return 0 if ranges else _NEVER
            case _:
                return 0
