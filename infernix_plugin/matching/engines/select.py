"""Which engine runs a grammar.

xgrammar runs any context-free grammar of characters. It has no intersections, precomputes masks for every state of
every rule, and unrolls counted choices into states. llguidance builds its automata while they are used and knows
intersections, but it cuts the output with a longest-match lexer, so it runs what
:mod:`infernix_plugin.matching.engines.lexing` can show to be exact. That is every JSON schema so far, and there it is
the faster one: 28 MaskBench schemas that both can run compile in 7 ms instead of 360 ms and take 0.010 ms per mask
instead of 0.025 ms (averages, Qwen3 vocabulary, one busy core).
"""

from __future__ import annotations

from infernix_plugin.errors import ConstraintTooLarge, UnsupportedSchema
from infernix_plugin.grammar.analysis import (
    dependency_order,
    fold,
    has_intersections,
    reachable,
    references,
    regular_rules,
)
from infernix_plugin.grammar.ir import (
    Alt,
    And,
    CharSet,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    children,
    walk,
)
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar
from infernix_plugin.matching.engines.lexing import ambiguity
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.xgrammar import XgrammarEngine

MAX_UNROLLED = 64
"""Largest number of letters a counted repetition may unroll to in xgrammar.

``[a-z ]{0,n}`` compiles in 0.35 s for n = 50 and in 2.4 s for n = 300 with xgrammar, in 6 ms for any n with llguidance,
whose masks then take 0.4 ms (Qwen3 vocabulary, one busy core).
"""
MAX_TERMINAL_NODES = 1 << 16
"""Largest tree that a regular grammar may become when its rules are written out into one terminal."""


class Engines:
    """The engines over one vocabulary, each indexed on first use."""

    def __init__(self, domain: TokenDomain, cache_bytes: int) -> None:
        """Bind to a vocabulary; ``cache_bytes`` bounds what an engine keeps between grammars."""
        self._domain = domain
        self.xgrammar = XgrammarEngine(domain, cache_bytes=cache_bytes)
        self.llguidance = LlguidanceEngine(domain)

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile with the engine that fits the grammar.

        Raises:
            UnsupportedSchema: it has intersections, and no engine can run it exactly.
            ConstraintTooLarge: past a limit of the only engine that can run it.
        """
        intersections = has_intersections(grammar)
        if intersections or _has_lexemes(grammar):
            obstacle = self._obstacle(grammar)
            if obstacle is None:
                try:
                    return self.llguidance.compile(grammar)
                except ConstraintTooLarge:
                    if intersections:
                        raise
            elif intersections:
                raise UnsupportedSchema(f"an intersection or a negation cannot be enforced exactly: {obstacle}")
        return self.xgrammar.compile(grammar)

    def _obstacle(self, grammar: Grammar) -> str | None:
        """Why llguidance cannot run the grammar exactly."""
        if any(_has_bare_characters(grammar.rules[name]) for name in reachable(grammar)):
            return "it stands beside characters that form no terminal"
        try:
            return ambiguity(grammar, self._domain)
        except RecursionError:
            return "a terminal is nested too deeply"


def as_terminal(grammar: Grammar) -> Grammar:
    """The same content language, as one lexeme where that is the better form.

    A regular language with intersections, or with counts that xgrammar would unroll for seconds, is better one
    terminal for llguidance. Nothing of the grammar's own follows the content, so a longest match is the whole match.
    """
    if _has_lexemes(grammar):
        return grammar
    if not has_intersections(grammar) and _unrolled_letters(grammar) <= MAX_UNROLLED:
        return grammar
    if grammar.root not in regular_rules(grammar):
        return grammar
    body = _written_out(grammar)
    return grammar if body is None else Grammar({grammar.root: Lexeme(body)}, grammar.root)


def _has_lexemes(grammar: Grammar) -> bool:
    return any(isinstance(part, Lexeme) for body in grammar.rules.values() for part in walk(body))


def _has_bare_characters(node: Node) -> bool:
    """Whether a character set, an intersection or a negation stands outside every lexeme."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, CharSet | And | Not):
            return True
        if not isinstance(current, Lexeme):
            pending.extend(children(current))
    return False


def _unrolled_letters(grammar: Grammar) -> int:
    """The most letters that one counted repetition unrolls to."""
    most = 0

    def letters(node: Node, below: list[int]) -> int:
        nonlocal most
        match node:
            case Literal(text):
                return len(text)
            case CharSet():
                return 1
            case Repeat(_, minimum, maximum) if max(minimum, maximum or 0) > 1:
                count = below[0] * max(minimum, maximum or 0)
                most = max(most, count)
                return count
            case _:
                return sum(below)

    for name in reachable(grammar):
        fold(grammar.rules[name], letters)
    return most


def _written_out(grammar: Grammar) -> Node | None:
    """The entry rule with every reference replaced; ``None`` if that is too large. The grammar must be regular."""
    bodies: dict[str, Node] = {}
    sizes: dict[str, int] = {}

    def replaced(node: Node, below: list[Node]) -> Node:
        match node:
            case Ref(name):
                return bodies[name]
            case Seq():
                return Seq(tuple(below))
            case Alt():
                return Alt(tuple(below))
            case And():
                return And(tuple(below))
            case Repeat(_, minimum, maximum):
                return Repeat(below[0], minimum, maximum)
            case Not():
                return Not(below[0])
            case _:
                return node

    needed = reachable(grammar)
    for (name,) in dependency_order({name: body for name, body in grammar.rules.items() if name in needed}):
        body = grammar.rules[name]
        sizes[name] = sum(1 for _ in walk(body)) + sum(sizes[used] for used in references(body))
        if sizes[name] > MAX_TERMINAL_NODES:
            return None
        bodies[name] = fold(body, replaced)
    return bodies[grammar.root]
