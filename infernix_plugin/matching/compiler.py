"""From a constraint to a compiled grammar, once per distinct constraint."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import perf_counter

from infernix_plugin.errors import ConflictingConstraints, ConstraintTooLarge
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.framing.tools.contract import CallChoice, ToolContract
from infernix_plugin.framing.tools.grammar import CallTokens, calls_of, output_grammar
from infernix_plugin.framing.tools.markup import CALL_CLOSE, CALL_OPEN
from infernix_plugin.grammar import budget, gbnf, lark
from infernix_plugin.grammar.build import build
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.cache import BuildCache, CacheStats, Outcome
from infernix_plugin.matching.collector import collection_paused
from infernix_plugin.matching.companions.argument_names import DistinctNames, DistinctNamesGrammar, WrittenTokens
from infernix_plugin.matching.companions.unique import Companions
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.select import Engines, as_terminal
from infernix_plugin.matching.terminals import restrict_terminals
from infernix_plugin.matching.turns import short_turns

DEFAULT_OPTIONS = GrammarOptions()
DEFAULT_COMPILE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """A compiled grammar and what it took to get it."""

    compiled: CompiledGrammar
    outcome: Outcome
    seconds: float
    """Wall time in the call: building, waiting, or almost nothing."""


class ConstraintCompiler:
    """Compiles and caches the constraints of one vocabulary. Thread-safe; a build runs on the thread that asks."""

    def __init__(
        self,
        domain: TokenDomain,
        *,
        options: GrammarOptions = DEFAULT_OPTIONS,
        cache_bytes: int = 256 << 20,
        max_cold_compiles: int = 2,
        max_compile_seconds: float = DEFAULT_COMPILE_SECONDS,
    ) -> None:
        """Bind to a vocabulary, which is indexed on first use.

        Args:
            domain: the vocabulary.
            options: limits and dialect, the same for every constraint.
            cache_bytes: budget of the compiled grammars that are kept; grammars in use outlive it.
            max_cold_compiles: builds that run at once; further ones wait, hits do not.
            max_compile_seconds: wall time of one build, not counting the wait for its turn. It is looked at in this
                package's own loops; the native work of an engine is not interrupted.
        """
        self.domain = domain
        self._options = options
        self._seconds = max_compile_seconds
        self._engines = Engines(domain, cache_bytes, options)
        self._written = WrittenTokens(domain)
        self._companions = Companions(domain)
        self._cache: BuildCache[CompiledGrammar] = BuildCache(cache_bytes, max_cold_compiles)

    def compile(self, constraint: OutputConstraint, *, framing: Framing = CONTENT) -> CompiledGrammar:
        """The compiled grammar of a constraint inside a framing.

        Raises:
            ConstraintError: the constraint cannot be enforced; the subclass says why.
        """
        return self.prepare(constraint, framing=framing).compiled

    def prepare(self, constraint: OutputConstraint, *, framing: Framing = CONTENT) -> Preparation:
        """Like :meth:`compile`, with the cache outcome and the time.

        Raises:
            ConstraintError: the constraint cannot be enforced; the subclass says why.
        """
        return self._prepared((constraint, framing), lambda: self.build(constraint, framing))

    def prepare_tools(
        self, contract: ToolContract, content: OutputConstraint | None = None, *, framing: Framing = CONTENT
    ) -> Preparation:
        """The compiled grammar of an output with tools, inside a framing.

        Args:
            contract: the tools and the policy.
            content: what an answer that is no call has to be; ``None`` for free text.
            framing: what stands before both.

        Raises:
            ConstraintError: the contract or the content cannot be enforced; see :func:`~.grammar.calls_of`.
        """
        if content is not None and contract.choice is CallChoice.NONE:
            return self.prepare(content, framing=framing)
        key = _key_of_tools(contract, content, framing)
        return self._prepared(key, lambda: self.build_tools(contract, content, framing))

    def compile_structural_tag(self, text: str) -> CompiledGrammar:
        """The compiled grammar of an xgrammar structural tag, given as JSON text.

        Raises:
            ConstraintError: xgrammar refuses it, or nothing satisfies it.
        """
        return self.prepare_structural_tag(text).compiled

    def prepare_structural_tag(self, text: str) -> Preparation:
        """Like :meth:`compile_structural_tag`, with the cache outcome and the time.

        Raises:
            ConstraintError: xgrammar refuses it, or nothing satisfies it.
        """
        return self._prepared(_key_of_structural_tag(text), lambda: self._build_structural_tag(text))

    def holds(self, constraint: OutputConstraint, *, framing: Framing = CONTENT) -> bool:
        """Whether :meth:`prepare` has nothing to build."""
        return self._cache.holds((constraint, framing))

    def holds_tools(
        self, contract: ToolContract, content: OutputConstraint | None = None, *, framing: Framing = CONTENT
    ) -> bool:
        """Whether :meth:`prepare_tools` has nothing to build."""
        if content is not None and contract.choice is CallChoice.NONE:
            return self.holds(content, framing=framing)
        return self._cache.holds(_key_of_tools(contract, content, framing))

    def holds_structural_tag(self, text: str) -> bool:
        """Whether :meth:`prepare_structural_tag` has nothing to build."""
        return self._cache.holds(_key_of_structural_tag(text))

    def stats(self) -> CacheStats:
        """Totals of the cache since the start, and its present content."""
        return self._cache.stats()

    def build(self, constraint: OutputConstraint, framing: Framing = CONTENT) -> CompiledGrammar:
        """What :meth:`compile` returns, past the cache.

        Raises:
            ConstraintError: the constraint cannot be enforced; the subclass says why.
        """
        # Here, in the build's own slot, so that nobody is charged for the builds ahead in the queue.
        with budget.limit(self._seconds), collection_paused(), short_turns():
            built = build(constraint, self._options)
            content = self._restricted(built, constraint)
            budget.checkpoint()
            framed = framing.apply(as_terminal(content))
            budget.checkpoint()
            grammar = self._companions.beside(self._engines.compile(framed), framed.unique)
            return CompiledGrammar(self.domain, grammar, built.remarks)

    def build_tools(
        self, contract: ToolContract, content: OutputConstraint | None = None, framing: Framing = CONTENT
    ) -> CompiledGrammar:
        """What :meth:`prepare_tools` returns, past the cache.

        Raises:
            ConstraintError: the contract or the content cannot be enforced.
        """
        with budget.limit(self._seconds), collection_paused(), short_turns():
            calls = calls_of(contract, self._options)
            answer = None if content is None else self._restricted(build(content, self._options), content)
            tokens = self._call_tokens()
            budget.checkpoint()
            framed = framing.apply(output_grammar(contract, calls, tokens, answer))
            grammar = self._companions.beside(self._engines.compile(framed), framed.unique)
            free = frozenset(call.name for call in calls if call.distinct)
            if free:
                names = DistinctNames(free, tokens.opening, framing.close_id)
                grammar = DistinctNamesGrammar(grammar, names, self._written)
            return CompiledGrammar(self.domain, grammar)

    def _prepared(self, key: Hashable, make: Callable[[], CompiledGrammar]) -> Preparation:
        started = perf_counter()
        compiled, outcome = self._cache.get(key, make)
        return Preparation(compiled, outcome, perf_counter() - started)

    def _restricted(self, built: Grammar, constraint: OutputConstraint) -> Grammar:
        return restrict_terminals(built, self.domain, lambda token: self._place_of(token, constraint))

    def _call_tokens(self) -> CallTokens:
        opening = self.domain.control_id(CALL_OPEN)
        if opening is None:
            raise ConflictingConstraints(f"The model has no token {CALL_OPEN}, so its calls cannot be constrained.")
        closing = self.domain.control_id(CALL_CLOSE)
        return CallTokens(opening, closing, tuple(self.domain.ids_of_class(TokenClass.CONTROL)))

    def _build_structural_tag(self, text: str) -> CompiledGrammar:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > (limit := self._options.max_grammar_bytes):
            raise ConstraintTooLarge(f"the structural tag has {size} bytes; max_grammar_bytes is {limit}")
        with budget.limit(self._seconds), collection_paused(), short_turns():
            return CompiledGrammar(self.domain, self._engines.xgrammar.compile_structural_tag(text))

    def _place_of(self, token: int, constraint: OutputConstraint) -> str | None:
        """Where a GBNF text names a token id first: the grammar made of it knows no places."""
        if constraint.kind is not ConstraintKind.GRAMMAR or lark.looks_like_lark(constraint.source):
            return None
        named = gbnf.token_terminals(constraint.source, self._options)
        return next((place for found, place in named if found == token), None)


def _key_of_tools(contract: ToolContract, content: OutputConstraint | None, framing: Framing) -> Hashable:
    return contract.identity(), content, framing


def _key_of_structural_tag(text: str) -> Hashable:
    return "structural_tag", text
