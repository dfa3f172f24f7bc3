"""The grammar of an output with tools: text, content or calls, as the contract allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from infernix_plugin.errors import ConstraintError
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.framing.tools.custom import text_argument
from infernix_plugin.framing.tools.encoding import Encoding, declared_encodings
from infernix_plugin.framing.tools.markup import (
    ANY_ARGUMENT,
    BETWEEN_CALLS,
    CALL_CLOSE,
    FUNCTION_ENDING,
    function_heading,
)
from infernix_plugin.framing.tools.strict import strict_arguments
from infernix_plugin.grammar.analysis import prefixed
from infernix_plugin.grammar.ir import (
    EPSILON,
    Grammar,
    Literal,
    Node,
    Ref,
    TokenSet,
    alt,
    repeat,
    seq,
)
from infernix_plugin.grammar.options import GrammarOptions

_ANY_ARGUMENTS = seq(repeat(ANY_ARGUMENT), FUNCTION_ENDING)


@dataclass(frozen=True, slots=True)
class CallTokens:
    """The tokens that stand around a call, by id; ``None`` where the vocabulary has no such token.

    ``reserved`` are all control tokens: free text may hold none of them.
    """

    opening: int
    closing: int | None
    reserved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """How a call of one function is written: the grammar from its arguments to its end, and the encoding of each.

    Arguments that ``encodings`` does not name have the encoding :data:`~.encoding.UNTYPED`.
    """

    name: str
    body: Grammar
    encodings: Mapping[str, Encoding]
    distinct: bool
    """Whether the grammar alone would allow an argument twice."""


def calls_of(contract: ToolContract, options: GrammarOptions) -> tuple[Call, ...]:
    """How each tool that may be called is called.

    Raises:
        ConstraintError: the arguments of a strict tool cannot be enforced; located as ``tools[i].parameters#/...``, or
            ``tools[i].format ...`` for a custom tool.
    """
    found = []
    for index, tool in contract.offered:
        try:
            found.append(_call_of(tool, options))
        except ConstraintError as error:
            location = error.location or ""
            member = "parameters" if tool.text is None else "format"
            place = f"tools[{index}].{member}{location if location.startswith('#') else f' {location}'}".rstrip()
            raise type(error)(error.message, location=place, hint=error.hint) from error
    return tuple(found)


@lru_cache(maxsize=256)  # the grammar and the reader both ask, and tools come back with every turn
def _call_of(tool: Tool, options: GrammarOptions) -> Call:
    if tool.text is not None:
        body, encodings = text_argument(tool.text, options)
        return Call(tool.name, body, encodings, distinct=False)
    if tool.parameters is None:
        return Call(tool.name, Grammar({"root": FUNCTION_ENDING}), {}, distinct=False)
    if tool.strict:
        body, encodings = strict_arguments(tool.parameters, options)
        return Call(tool.name, body, encodings, distinct=False)
    return Call(tool.name, Grammar({"root": _ANY_ARGUMENTS}), declared_encodings(tool.parameters), distinct=True)


def output_grammar(
    contract: ToolContract, calls: tuple[Call, ...], tokens: CallTokens, content: Grammar | None
) -> Grammar:
    """The grammar of everything behind the reasoning.

    Args:
        contract: the policy.
        calls: from :func:`calls_of`.
        tokens: of the vocabulary.
        content: of an answer that is no call, whose token terminals are already checked; ``None`` for free text.
    """
    text = "text"
    free = TokenSet(tokens.reserved, exclude=True)
    rules: dict[str, Node] = {}
    sequence = _sequence(calls, tokens, rules, more=contract.parallel)
    if contract.choice is CallChoice.REQUIRED:
        return Grammar({"root": sequence, **rules})
    if content is not None:
        rules.update(prefixed(content, "content"))
        answer = Ref(f"content_{content.root}")
        return Grammar({"root": alt(answer, sequence) if calls else answer, **rules}, unique=content.unique)
    # Right recursion, as in the reasoning: every mask is one look-up.
    rules[text] = alt(EPSILON, seq(free, Ref(text)), *([sequence] if calls else []))
    return Grammar({"root": Ref(text), **rules})


def _sequence(calls: tuple[Call, ...], tokens: CallTokens, rules: dict[str, Node], *, more: bool) -> Node:
    """One or more calls; adds what it needs to ``rules``."""
    bodies = []
    for index, call in enumerate(calls):
        rules.update(prefixed(call.body, f"tool{index}"))
        # A rule that begins with a text of its own: no other function's lines are confused with what follows.
        rules[f"tool{index}"] = seq(function_heading(call.name), Ref(f"tool{index}_{call.body.root}"))
        bodies.append(Ref(f"tool{index}"))
    closing: Node = Literal(CALL_CLOSE) if tokens.closing is None else TokenSet((tokens.closing,))
    opening = TokenSet((tokens.opening,))
    rules["call"] = seq(opening, alt(*bodies), closing)
    one = Ref("call")
    return seq(one, repeat(seq(Literal(BETWEEN_CALLS), one))) if more else one
