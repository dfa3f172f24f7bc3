"""Top-down matching of grammars without left recursion: as exact as ``ir_oracle`` and fast enough for JSON texts."""

from __future__ import annotations

from collections.abc import Mapping

from infernix_plugin.grammar.ir import Alt, And, CharSet, Grammar, Lexeme, Literal, Node, Not, Ref, Repeat, Seq, Words
from tests.oracles.unique_items import keeps_items_apart

Ends = frozenset[int]


def matches(grammar: Grammar, text: str) -> bool:
    """Whether ``text`` is in the language of the entry rule."""
    derived = len(text) in Matcher(grammar.rules, text).ends(grammar.rules[grammar.root], 0)
    return derived and keeps_items_apart(grammar, text)


def in_language(node: Node, text: str) -> bool:
    """Whether ``text`` is in the language of a regular node."""
    return len(text) in Matcher({}, text).ends(node, 0)


class Matcher:
    """Where the parts of one grammar can end in one text."""

    def __init__(self, rules: Mapping[str, Node], text: str) -> None:
        self._rules = rules
        self._text = text
        self._rule_ends: dict[tuple[str, int], Ends] = {}

    def ends(self, node: Node, start: int) -> Ends:
        text = self._text
        match node:
            case Literal(word):
                return frozenset([start + len(word)] if text.startswith(word, start) else [])
            case Words(texts):
                return frozenset(start + len(word) for word in texts if text.startswith(word, start))
            case CharSet():
                return frozenset([start + 1] if start < len(text) and ord(text[start]) in node else [])
            case Ref(name):
                if (name, start) not in self._rule_ends:
                    self._rule_ends[name, start] = self.ends(self._rules[name], start)
                return self._rule_ends[name, start]
            case Lexeme(item):
                return self.ends(item, start)
            case Alt(options):
                return frozenset().union(*(self.ends(option, start) for option in options))
            case Seq(items):
                here = frozenset([start])
                for item in items:
                    here = self._after(item, here)
                return here
            case Repeat(item, minimum, maximum):
                here, found, seen = frozenset([start]), frozenset[int](), set[Ends]()
                count = 0
                while here and (maximum is None or count <= maximum):
                    if count >= minimum:
                        found |= here
                        if here in seen:  # from here on the rounds only come round again
                            break
                        seen.add(here)
                    here = self._after(item, here)
                    count += 1
                return found
            case And(items):
                found = self.ends(items[0], start)
                for item in items[1:]:
                    found &= self.ends(item, start)
                return found
            case Not(item):
                return frozenset(range(start, len(text) + 1)) - self.ends(item, start)
            case _:
                raise TypeError(f"{node!r} does not describe text")

    def _after(self, item: Node, starts: Ends) -> Ends:
        return frozenset().union(*(self.ends(item, start) for start in starts))
