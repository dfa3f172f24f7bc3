"""Which engine runs a grammar.

llguidance builds its automata while they are used and knows intersections, but it cuts the output with a longest-match
lexer, so it runs what :mod:`infernix_plugin.matching.engines.lexing` can show to be exact: every JSON schema so far,
and every language that is regular as a whole, which is one terminal. There it is the better engine: 21 MaskBench
schemas that both can run compile in 7 ms instead of 360 ms and take 0.010 ms per mask instead of 0.025 ms; a choice of
5000 random strings compiles in 0.6 s instead of 8.6 s (averages, Qwen3 vocabulary, one busy core).

xgrammar runs what is left, which is any other context-free grammar without intersections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from infernix_plugin.errors import ConstraintTooLarge, UnsupportedSchema
from infernix_plugin.grammar.analysis import (
    dependency_order,
    fold,
    has_intersections,
    leaves,
    outline,
    reachable,
    references,
    regular_rules,
    size,
)
from infernix_plugin.grammar.budget import CompileTimeout
from infernix_plugin.grammar.ir import (
    EPSILON,
    CharSet,
    Grammar,
    Lexeme,
    Node,
    Ref,
    TokenSet,
    rebuilt,
    walk,
)
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.structural_tag import TagGrammar
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar
from infernix_plugin.matching.engines.lexing import ambiguity, frame_ambiguity, plain_value
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.meter import Allowance
from infernix_plugin.matching.engines.xgrammar import Native, XgrammarEngine
from infernix_plugin.matching.memo.machine import Terminals
from infernix_plugin.matching.memo.matcher import RememberedGrammar
from infernix_plugin.matching.memo.memory import Memory

MAX_TERMINAL_NODES = 1 << 20
"""Largest tree that a regular grammar may become when its rules are written out into one terminal."""

MAX_FALLBACK_NODES = 1 << 14
"""Largest grammar that xgrammar takes over past a limit of llguidance; larger ones it would compile for minutes."""


@dataclass(frozen=True, slots=True)
class Lark:
    """A grammar for llguidance.

    Attributes:
        text: in its notation.
        grammar: what the text was made of, ``None`` if its masks are not to be remembered.
        has_spare: whether xgrammar may run it if llguidance does not.
        spelled: whether it is of a structural tag, beside which control tokens also match by their spelling.
    """

    text: str
    grammar: Grammar | None
    has_spare: bool
    spelled: bool = False


Source = Lark | Native
"""What an engine runs, as far as it takes the grammar alone to know it."""


class Engines:
    """The engines over one vocabulary, each indexed on first use."""

    def __init__(self, domain: TokenDomain, cache_bytes: int, options: GrammarOptions) -> None:
        """Bind to a vocabulary; ``cache_bytes`` bounds what an engine keeps between grammars."""
        self._domain = domain
        allowance = Allowance(options.max_mask_seconds, options.max_excess_seconds)
        self.xgrammar = XgrammarEngine(domain, cache_bytes=cache_bytes, allowance=allowance)
        self.llguidance = LlguidanceEngine(domain, allowance)
        has_control = bool(domain.ids_of_class(TokenClass.CONTROL))
        self._spelled = LlguidanceEngine(domain, allowance, spelled=True) if has_control else self.llguidance
        self._terminals = Terminals(Memory(cache_bytes // 4))

    def compile(self, grammar: Grammar) -> EngineGrammar:
        """Compile with the engine that fits the grammar.

        Raises:
            UnsupportedSchema: it has intersections, and no engine can run it exactly.
            ConstraintTooLarge: past a limit of the only engine that can run it.
        """
        source = self.source(grammar)
        try:
            return self.made(source)
        except CompileTimeout:
            raise
        except ConstraintTooLarge:
            if not isinstance(source, Lark) or not source.has_spare:
                raise
            return self.made(self.source(grammar, spare=True))

    def source(self, grammar: Grammar, *, spare: bool = False) -> Source:
        """What the engine that fits the grammar runs.

        Args:
            grammar: of the whole output.
            spare: not llguidance, which has refused it.

        Raises:
            UnsupportedSchema: it has intersections, and no engine can run it exactly.
            ConstraintTooLarge: past a limit of the only engine that can run it.
        """
        needed = reachable(grammar)
        grammar = replace(grammar, rules={name: body for name, body in grammar.rules.items() if name in needed})
        intersections = has_intersections(grammar)
        if not spare and (intersections or _has_lexemes(grammar) or not _has_text(grammar)):
            obstacle = self._obstacle(grammar)
            if obstacle is None:
                has_spare = not intersections and size(grammar) <= MAX_FALLBACK_NODES
                try:
                    return Lark(self.llguidance.text(grammar), grammar, has_spare)
                except CompileTimeout:
                    raise
                except ConstraintTooLarge:
                    if not has_spare:
                        raise
            elif intersections:
                raise UnsupportedSchema(f"an intersection or a negation cannot be enforced exactly: {obstacle}")
        return self.xgrammar.native(grammar)

    def tag_source(self, tag: TagGrammar) -> Lark | None:
        """What llguidance runs for a structural tag; ``None`` if it cannot run it exactly, or the tag is too large."""
        plain: dict[int, Node | None] = {}
        for value in tag.values.values():
            if id(value) not in plain:
                plain[id(value)] = plain_value(value.rules, value.root)
        values = {name: found for name, value in tag.values.items() if (found := plain[id(value)]) is not None}
        if len(values) < len(tag.values) or frame_ambiguity(tag.frame, values, self._domain) is not None:
            return None
        try:
            return Lark(self.llguidance.text(tag.whole()), None, has_spare=True, spelled=True)
        except CompileTimeout:
            raise
        except ConstraintTooLarge:
            return None

    def made(self, source: Source) -> EngineGrammar:
        """What runs a source.

        Raises:
            ConstraintTooLarge: past a limit of its engine.
        """
        if isinstance(source, Native):
            return self.xgrammar.made(source)
        made = (self._spelled if source.spelled else self.llguidance).made(source.text)
        if source.grammar is None:
            return made
        return RememberedGrammar(made, source.grammar, self._domain, self._terminals)

    def _obstacle(self, grammar: Grammar) -> str | None:
        """Why llguidance cannot run the grammar exactly."""
        if any(map(_has_bare_characters, grammar.rules.values())):
            return "it stands beside characters that form no terminal"
        try:
            return ambiguity(grammar, self._domain)
        except RecursionError:
            return "a terminal is nested too deeply"


def as_terminal(grammar: Grammar) -> Grammar:
    """The same content language, as one lexeme if it is regular and the front end made no lexemes.

    Nothing of the grammar's own follows the content, so a longest match is the whole match.
    """
    if _has_lexemes(grammar) or grammar.root not in regular_rules(grammar):
        return grammar
    body = _written_out(grammar)
    return grammar if body is None else replace(grammar, rules={grammar.root: Lexeme(body)})


def _has_lexemes(grammar: Grammar) -> bool:
    return any(isinstance(leaf, Lexeme) for body in grammar.rules.values() for leaf in leaves(body))


def _has_text(grammar: Grammar) -> bool:
    """Whether anything but tokens is named by what it writes."""
    text = (leaf for body in grammar.rules.values() for leaf in leaves(body) if not isinstance(leaf, TokenSet | Ref))
    return any(leaf != EPSILON for leaf in text)


def _has_bare_characters(node: Node) -> bool:
    """Whether a character set, an intersection or a negation stands outside every lexeme."""
    return outline(node).intersects or any(isinstance(leaf, CharSet) for leaf in leaves(node))


def _written_out(grammar: Grammar) -> Node | None:
    """The entry rule with every reference replaced; ``None`` if that is too large. The grammar must be regular."""
    bodies: dict[str, Node] = {}
    sizes: dict[str, int] = {}

    def replaced(node: Node, below: list[Node]) -> Node:
        return bodies[node.name] if isinstance(node, Ref) else rebuilt(node, below)

    needed = reachable(grammar)
    for (name,) in dependency_order({name: body for name, body in grammar.rules.items() if name in needed}):
        body = grammar.rules[name]
        sizes[name] = sum(1 for _ in walk(body)) + sum(sizes[used] for used in references(body))
        if sizes[name] > MAX_TERMINAL_NODES:
            return None
        bodies[name] = fold(body, replaced) if references(body) else body
    return bodies[grammar.root]
