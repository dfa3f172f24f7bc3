"""Jobs, plans and errors as byte strings, to be sent between processes of this package.

Everything is JSON, but for an engine's text, which may be megabytes long and is sent as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infernix_plugin.errors import ConstraintError, InfernixError, for_log, kind_of_constraint_error
from infernix_plugin.framing.phases import Framing
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.wire import (
    packed_remarks,
    packed_rules,
    packed_unique,
    unpacked_remarks,
    unpacked_rules,
    unpacked_unique,
)
from infernix_plugin.matching.companions.argument_names import DistinctNames
from infernix_plugin.matching.domain import TokenClass, TokenDomain
from infernix_plugin.matching.engines.select import Engines, Lark, Source
from infernix_plugin.matching.engines.xgrammar import Native
from infernix_plugin.matching.plan import Job, Plan

MAX_RULES_BYTES = 1 << 20
"""Largest grammar that travels beside its text. Its masks are not remembered without it: to read more would hold up the
threads of the process that asked."""

Frames = Sequence[bytes]


def packed_domain(domain: TokenDomain) -> Frames:
    """A vocabulary: the lengths of its pieces, their bytes, the classes, and the markers."""
    ids = range(domain.vocab_size)
    pieces = [domain.token_bytes(token) for token in ids]
    classes = bytes(domain.token_class(token) for token in ids)
    return [_packed([len(piece) for piece in pieces]), b"".join(pieces), classes, _packed(domain.markers)]


def unpacked_domain(frames: Frames) -> TokenDomain:
    """Inverse of :func:`packed_domain`."""
    lengths, data, classes, markers = frames
    pieces, start = [], 0
    for length in json.loads(lengths):
        pieces.append(data[start : start + length])
        start += length
    return TokenDomain(
        pieces,
        control=json.loads(markers),
        stop=[token for token, kind in enumerate(classes) if kind == TokenClass.STOP],
        unused=[token for token, kind in enumerate(classes) if kind == TokenClass.UNUSED],
    )


def packed_job(job: Job, *, spare: bool) -> Frames:
    """A job, and for which engine."""
    contract = job.contract and {
        "tools": [
            {"name": tool.name, "parameters": tool.parameters, "strict": tool.strict, "text": _constraint(tool.text)}
            for tool in job.contract.tools
        ],
        "choice": job.contract.choice,
        "allowed": None if job.contract.allowed is None else sorted(job.contract.allowed),
        "parallel": job.contract.parallel,
        "basic": job.contract.basic,
    }
    values = {
        "content": _constraint(job.content),
        "contract": contract,
        "framing": asdict(job.framing),
        "structural_tag": job.structural_tag,
        "spare": spare,
    }
    return [_packed(values)]


def unpacked_job(frames: Frames) -> tuple[Job, bool]:
    """Inverse of :func:`packed_job`."""
    values = json.loads(frames[0])
    contract = values["contract"]
    if contract is not None:
        tools = tuple(Tool(**{**tool, "text": _read_constraint(tool["text"])}) for tool in contract["tools"])
        contract = ToolContract(
            tools,
            CallChoice(contract["choice"]),
            None if contract["allowed"] is None else frozenset(contract["allowed"]),
            contract["parallel"],
            contract["basic"],
        )
    framing = Framing(**{**values["framing"], "never": tuple(values["framing"]["never"])})
    return Job(_read_constraint(values["content"]), contract, framing, values["structural_tag"]), values["spare"]


def packed_plan(plan: Plan) -> Frames:
    """A plan: what stands beside the engine's text, the text, and the rules behind it or what xgrammar made of it."""
    source, names = plan.source, plan.names
    rules = b""
    header: dict[str, Any] = {
        "unique": plan.unique and packed_unique(plan.unique),
        "names": names and [sorted(names.functions), names.opening, names.closing_reasoning],
        "remarks": packed_remarks(plan.remarks),
    }
    if isinstance(source, Native):
        header |= {"spelled": source.spelled, "cached": source.cached}
        return [_packed(header), source.text.encode(), b"" if source.is_large else source.packed().encode()]
    if source.grammar is not None:
        rules = _packed(packed_rules(source.grammar.rules))
        if len(rules) > MAX_RULES_BYTES:
            rules = b""
        header |= {"root": source.grammar.root}
    header |= {"has_spare": source.has_spare, "spelled": source.spelled}
    return [_packed(header), source.text.encode(), rules]


def unpacked_plan(frames: Frames, engines: Engines) -> Plan:
    """Inverse of :func:`packed_plan`, over the engines that will run it."""
    header, text, made = json.loads(frames[0]), frames[1].decode(), frames[2]
    source: Source
    if "cached" in header:
        how = {"spelled": header["spelled"], "cached": header["cached"]}
        xgrammar = engines.xgrammar
        source = xgrammar.unpacked(made.decode(), text, **how) if made else xgrammar.again(text, **how)
    else:
        grammar = Grammar(unpacked_rules(json.loads(made)), header["root"]) if made else None
        source = Lark(text, grammar, header["has_spare"], header["spelled"])
    names = header["names"]
    return Plan(
        source,
        header["unique"] and unpacked_unique(header["unique"]),
        names and DistinctNames(frozenset(names[0]), names[1], names[2]),
        unpacked_remarks(header["remarks"]),
    )


def packed_error(error: Exception) -> Frames:
    """An error; of one that is not of a constraint, what the log may say."""
    if isinstance(error, ConstraintError):
        return [_packed([type(error).__name__, error.message, error.location, error.hint])]
    return [_packed([None, for_log(error), None, None])]


def unpacked_error(frames: Frames) -> InfernixError:
    """Inverse of :func:`packed_error`; what is not of a constraint is an :class:`InfernixError`."""
    kind, message, location, hint = json.loads(frames[0])
    known = kind_of_constraint_error(kind)
    if known is None:
        return InfernixError(f"A compile failed: {message}")
    return known(message, location=location, hint=hint)


def _constraint(constraint: OutputConstraint | None) -> Any:
    return None if constraint is None else [constraint.kind, constraint.source, constraint.choices]


def _read_constraint(values: Any) -> OutputConstraint | None:
    return None if values is None else OutputConstraint(ConstraintKind(values[0]), values[1], tuple(values[2]))


def _packed(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
