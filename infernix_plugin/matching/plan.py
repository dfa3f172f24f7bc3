"""What has to be worked out about a constraint before an engine runs it: the long part of a compile, in Python mostly.

It depends on the constraint, the vocabulary and the options only, and its result can be sent to another process: so it
may be done in one that has nobody to serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from infernix_plugin.errors import ConflictingConstraints, ConstraintTooLarge, InvalidGrammar
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.framing.tools.contract import ToolContract
from infernix_plugin.framing.tools.grammar import CallTokens, calls_of, output_grammar
from infernix_plugin.framing.tools.markup import CALL_CLOSE, CALL_OPEN
from infernix_plugin.grammar import budget, gbnf, lark
from infernix_plugin.grammar.build import build
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from infernix_plugin.grammar.ir import Grammar, Remark
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.places import UniqueItems
from infernix_plugin.matching.collector import collection_paused
from infernix_plugin.matching.companions.argument_names import DistinctNames
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.select import Engines, Source, as_terminal
from infernix_plugin.matching.tag_formats import check_formats
from infernix_plugin.matching.tag_schemas import with_own_schemas
from infernix_plugin.matching.tag_terminals import tag_grammar
from infernix_plugin.matching.terminals import restrict_terminals
from infernix_plugin.matching.turns import short_turns


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be compiled; hashable.

    Attributes:
        content: what content has to be; beside ``contract``, an answer that is no call.
        contract: the tools and the policy.
        framing: what stands before both.
        structural_tag: JSON text; then there is nothing else.
    """

    content: OutputConstraint | None = None
    contract: ToolContract | None = None
    framing: Framing = CONTENT
    structural_tag: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled grammar without what only this process can hold.

    Attributes:
        source: what the engine runs.
        unique: where items must differ.
        names: where names must differ.
        remarks: on the constraint.
    """

    source: Source
    unique: UniqueItems | None = None
    names: DistinctNames | None = None
    remarks: tuple[Remark, ...] = ()


class Planner(Protocol):
    """Makes plans, here or elsewhere. Thread-safe."""

    def plan(self, job: Job, *, spare: bool = False) -> Plan:
        """Work out a plan.

        Args:
            job: what is to be compiled.
            spare: for the other engine: llguidance has refused the first plan.

        Raises:
            ConstraintError: the constraint cannot be enforced.
        """


class LocalPlanner:
    """Makes plans on the calling thread."""

    clock: Callable[[], float] | None = None
    """What measures a plan's time; wall time if it is ``None``."""

    def __init__(self, domain: TokenDomain, engines: Engines, options: GrammarOptions, seconds: float) -> None:
        """Bind to a vocabulary; a plan may take ``seconds``."""
        self._domain = domain
        self._engines = engines
        self._options = options
        self._seconds = seconds

    def plan(self, job: Job, *, spare: bool = False) -> Plan:
        """Work out a plan; see :class:`Planner`."""
        with budget.limit(self._seconds, self.clock), collection_paused(), short_turns():
            if job.structural_tag is not None:
                return self._structural_tag(job.structural_tag, spare)
            if job.contract is not None:
                return self._calls(job.contract, job, spare)
            assert job.content is not None
            built = build(job.content, self._options)
            content = self._restricted(built, job.content)
            budget.checkpoint()
            framed = job.framing.apply(as_terminal(content))
            budget.checkpoint()
            return Plan(self._engines.source(framed, spare=spare), framed.unique, remarks=built.remarks)

    def _calls(self, contract: ToolContract, job: Job, spare: bool) -> Plan:
        calls = calls_of(contract, self._options)
        content = job.content
        answer = None if content is None else self._restricted(build(content, self._options), content)
        tokens = self._call_tokens()
        budget.checkpoint()
        framed = job.framing.apply(output_grammar(contract, calls, tokens, answer))
        free = frozenset(call.name for call in calls if call.distinct)
        names = DistinctNames(free, tokens.opening, job.framing.close_id) if free else None
        return Plan(self._engines.source(framed, spare=spare), framed.unique, names)

    def _structural_tag(self, text: str, spare: bool) -> Plan:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > (limit := self._options.max_grammar_bytes):
            raise ConstraintTooLarge(f"the structural tag has {size} bytes; max_grammar_bytes is {limit}")
        try:
            tag = json.loads(text)
            form = tag["format"]
        except (ValueError, TypeError, KeyError):
            raise InvalidGrammar("The structural tag is not a JSON object with a format.") from None
        check_formats(form)
        own = None if spare else self._own_tag(form)
        if own is not None:
            return Plan(own)
        budget.checkpoint()
        return Plan(self._engines.xgrammar.native_structural_tag(with_own_schemas(tag, self._options)))

    def _own_tag(self, form: Any) -> Source | None:
        """What runs the format of a tag as a grammar of this package; ``None`` if it is left to xgrammar."""
        read = tag_grammar(form, self._options)
        budget.checkpoint()
        return None if read is None else self._engines.tag_source(read)

    def _restricted(self, built: Grammar, constraint: OutputConstraint) -> Grammar:
        return restrict_terminals(built, self._domain, lambda token: self._place_of(token, constraint))

    def _call_tokens(self) -> CallTokens:
        opening = self._domain.control_id(CALL_OPEN)
        if opening is None:
            raise ConflictingConstraints(f"The model has no token {CALL_OPEN}, so its calls cannot be constrained.")
        closing = self._domain.control_id(CALL_CLOSE)
        return CallTokens(opening, closing, tuple(self._domain.ids_of_class(TokenClass.CONTROL)))

    def _place_of(self, token: int, constraint: OutputConstraint) -> str | None:
        """Where a GBNF text names a token id first: the grammar made of it knows no places."""
        if constraint.kind is not ConstraintKind.GRAMMAR or lark.looks_like_lark(constraint.source):
            return None
        named = gbnf.token_terminals(constraint.source, self._options)
        return next((place for found, place in named if found == token), None)
