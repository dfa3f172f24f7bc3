"""What a grammar means, by brute force and from the definition: least fix-points over spans and over finite sets.

Shares nothing with the package but the node classes. Exponential in places; for small grammars and short texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from infernix_plugin.grammar.ir import Alt, And, CharSet, Grammar, Lexeme, Literal, Node, Not, Ref, Repeat, Seq, Words


def matches(grammar: Grammar, text: str) -> bool:
    """Whether ``text`` is in the language of the entry rule."""
    return len(text) in spans(grammar, text)[grammar.root, 0]


def viable(grammar: Grammar, text: str, alphabet: str, extra: int) -> bool:
    """Whether some continuation of at most ``extra`` characters of ``alphabet`` completes ``text``."""
    return any(matches(grammar, text + "".join(tail)) for n in range(extra + 1) for tail in product(alphabet, repeat=n))


def spans(grammar: Grammar, text: str) -> dict[tuple[str, int], frozenset[int]]:
    """For every rule and start position the end positions: the least solution, by rounds from below."""
    table = {(name, start): frozenset[int]() for name in grammar.rules for start in range(len(text) + 1)}
    while True:
        new = {(name, start): _ends(grammar.rules[name], start, text, table) for name, start in table}
        if new == table:
            return table
        table = new


def _ends(node: Node, start: int, text: str, table: dict[tuple[str, int], frozenset[int]]) -> frozenset[int]:
    match node:
        case Literal(word):
            return frozenset([start + len(word)] if text.startswith(word, start) else [])
        case Words(texts):
            return frozenset(start + len(word) for word in texts if text.startswith(word, start))
        case CharSet(ranges):
            hit = start < len(text) and any(low <= ord(text[start]) <= high for low, high in ranges)
            return frozenset([start + 1] if hit else [])
        case Ref(name):
            return table[name, start]
        case Lexeme(item):
            return _ends(item, start, text, table)
        case Alt(options):
            return frozenset().union(*(_ends(option, start, text, table) for option in options))
        case Seq(items):
            here = frozenset([start])
            for item in items:
                here = frozenset().union(*(_ends(item, middle, text, table) for middle in here))
            return here
        case Repeat(item, minimum, maximum):
            # More rounds than characters change nothing: either every round is empty or no start is left.
            enough = len(text) + 1
            last = enough if maximum is None else min(maximum, enough)
            here, found = frozenset([start]), frozenset[int]()
            for count in range(last + 1):
                if count >= min(minimum, enough):
                    found |= here
                here = frozenset().union(*(_ends(item, middle, text, table) for middle in here))
            return found
        case And(items):
            sets = [_ends(item, start, text, table) for item in items]
            return frozenset(range(start, len(text) + 1)).intersection(*sets)
        case Not(item):
            return frozenset(range(start, len(text) + 1)) - _ends(item, start, text, table)
        case _:
            raise TypeError(f"{node!r} does not describe text")


def language(grammar: Grammar, alphabet: Iterable[str], max_len: int) -> set[str]:
    """Every string over ``alphabet`` of at most ``max_len`` characters in the language of the entry rule."""
    letters = sorted(set(alphabet))
    universe = frozenset("".join(word) for n in range(max_len + 1) for word in product(letters, repeat=n))
    known: dict[str, frozenset[str]] = {name: frozenset() for name in grammar.rules}
    while True:
        new = {name: _words(body, universe, known) for name, body in grammar.rules.items()}
        if new == known:
            return set(known[grammar.root])
        known = new


def _words(node: Node, universe: frozenset[str], known: dict[str, frozenset[str]]) -> frozenset[str]:
    match node:
        case Literal(word):
            return universe & {word}
        case Words(texts):
            return universe.intersection(texts)
        case CharSet(ranges):
            return frozenset(w for w in universe if len(w) == 1 and any(a <= ord(w) <= b for a, b in ranges))
        case Ref(name):
            return known[name]
        case Lexeme(item):
            return _words(item, universe, known)
        case Alt(options):
            return frozenset().union(*(_words(option, universe, known) for option in options))
        case Seq(items):
            done = frozenset([""])
            for item in items:
                done = _join(done, _words(item, universe, known), universe)
            return done
        case Repeat(item, minimum, maximum):
            words = _words(item, universe, known)
            enough = 1 + max(map(len, universe))
            here, found = frozenset([""]), frozenset[str]()
            for count in range((enough if maximum is None else min(maximum, enough)) + 1):
                if count >= min(minimum, enough):
                    found |= here
                here = _join(here, words, universe)
            return found
        case And(items):
            return universe.intersection(*(_words(item, universe, known) for item in items))
        case Not(item):
            return universe - _words(item, universe, known)
        case _:
            raise TypeError(f"{node!r} does not describe text")


def _join(left: frozenset[str], right: frozenset[str], universe: frozenset[str]) -> frozenset[str]:
    return frozenset(a + b for a in left for b in right) & universe
