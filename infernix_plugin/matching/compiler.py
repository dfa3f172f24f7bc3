"""From a constraint to a compiled grammar, once per distinct constraint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.framing.tools.contract import CallChoice, ToolContract
from infernix_plugin.grammar.budget import CompileTimeout
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.cache import BuildCache, CacheStats, Outcome
from infernix_plugin.matching.companions.argument_names import DistinctNamesGrammar, WrittenTokens
from infernix_plugin.matching.companions.unique import Companions
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.select import Engines, Lark
from infernix_plugin.matching.plan import Job, LocalPlanner, Plan, Planner
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
        self._engines = Engines(domain, cache_bytes, options)
        self._written = WrittenTokens(domain)
        self._companions = Companions(domain)
        self._planner: Planner = LocalPlanner(domain, self._engines, options, max_compile_seconds)
        self._cache: BuildCache[CompiledGrammar] = BuildCache(cache_bytes, max_cold_compiles)

    def plan_with(self, make: Callable[[Engines, Planner], Planner], max_builds: int) -> None:
        """Let builds be planned elsewhere, and so many of them begin at once. To be called before the first build.

        Args:
            make: the planner, given the engines and the planner of this process.
            max_builds: the planner has to see to it that they take turns.
        """
        self._planner = make(self._engines, self._planner)
        self._cache.allow(max_builds)

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
        return self._prepared(Job(constraint, framing=framing))

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
        job = Job(content, contract, framing)
        return self._prepared(job, replace(job, contract=contract.identity()))

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
        return self._prepared(Job(structural_tag=text))

    def holds(self, constraint: OutputConstraint, *, framing: Framing = CONTENT) -> bool:
        """Whether :meth:`prepare` has nothing to build."""
        return self._cache.holds(Job(constraint, framing=framing))

    def holds_tools(
        self, contract: ToolContract, content: OutputConstraint | None = None, *, framing: Framing = CONTENT
    ) -> bool:
        """Whether :meth:`prepare_tools` has nothing to build."""
        if content is not None and contract.choice is CallChoice.NONE:
            return self.holds(content, framing=framing)
        return self._cache.holds(Job(content, contract.identity(), framing))

    def holds_structural_tag(self, text: str) -> bool:
        """Whether :meth:`prepare_structural_tag` has nothing to build."""
        return self._cache.holds(Job(structural_tag=text))

    def stats(self) -> CacheStats:
        """Totals of the cache since the start, and its present content."""
        return self._cache.stats()

    def build(self, job: Job) -> CompiledGrammar:
        """What is compiled for a job, past the cache.

        Raises:
            ConstraintError: the constraint cannot be enforced; the subclass says why.
        """
        plan = self._planner.plan(job)
        try:
            return self._assembled(plan)
        except CompileTimeout:
            raise
        except ConstraintTooLarge:
            if not isinstance(plan.source, Lark) or not plan.source.has_spare:
                raise
        return self._assembled(self._planner.plan(job, spare=True))

    def _assembled(self, plan: Plan) -> CompiledGrammar:
        with short_turns():
            grammar = self._companions.beside(self._engines.made(plan.source), plan.unique)
            if plan.names is not None:
                grammar = DistinctNamesGrammar(grammar, plan.names, self._written)
            return CompiledGrammar(self.domain, grammar, plan.remarks)

    def _prepared(self, job: Job, key: Job | None = None) -> Preparation:
        started = perf_counter()
        compiled, outcome = self._cache.get(key or job, lambda: self.build(job))
        return Preparation(compiled, outcome, perf_counter() - started)
