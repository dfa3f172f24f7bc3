"""Check a constraint, and an instance against it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import typer

from infernix_plugin import settings
from infernix_plugin.entrypoints.check.instance import legal_tokens, refusal_of
from infernix_plugin.entrypoints.check.kind import Kind
from infernix_plugin.entrypoints.check.report import InstanceReport, Report, problem_of
from infernix_plugin.entrypoints.check.respelling import respelled
from infernix_plugin.entrypoints.check.source import STDIN, constraint_of, kind_of, read_bytes, read_text
from infernix_plugin.entrypoints.check.validity import schema_valid
from infernix_plugin.entrypoints.check.vocabulary import Vocabulary, load_vocabulary
from infernix_plugin.errors import ConstraintError, InvalidGrammar, SettingsError
from infernix_plugin.grammar.constraint import ConstraintKind, OutputConstraint
from infernix_plugin.matching import ConstraintCompiler, TokenDomain
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.compiler import Preparation
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.tag_fault import fault_behind

Constraint = OutputConstraint | StructuralTag


@dataclass(frozen=True)
class CheckOptions:
    """The arguments of ``infernix check``; ``-`` is standard input."""

    source: str
    kind: Kind | None = None
    tokenizer: Path | None = None
    instance: str | None = None
    show_grammar: bool = False


def check(options: CheckOptions) -> Report:
    """Compile the constraint and walk the instance.

    Raises:
        typer.BadParameter: something cannot be read.
    """
    if options.source == options.instance == STDIN:
        raise typer.BadParameter("only one of the constraint and the instance can come from standard input")
    kind = kind_of(options.source, options.kind)
    own = _settings()
    instance = None if options.instance is None else read_bytes(options.instance)
    vocabulary = load_vocabulary(options.tokenizer)
    domain = vocabulary.domain
    report = Report(kind.value, vocabulary.name, domain.vocab_size, supported=True)
    text = read_text(options.source)
    try:
        constraint = constraint_of(options.source, text, kind)
        prepared = _prepare(domain, constraint, own)
    except ConstraintError as error:
        return replace(report, supported=False, error=problem_of(_explained(error, text, kind)))
    compiled = prepared.compiled
    return replace(
        report,
        engine=compiled.engine,
        compile_seconds=prepared.seconds,
        memory_bytes=compiled.memory_bytes,
        first_tokens=len(legal_tokens(compiled.first_row, domain)),
        may_be_empty=compiled.session().complete,
        warnings=compiled.remarks,
        grammar=compiled.grammar_text() if options.show_grammar else None,
        instance=None if instance is None else _instance(compiled, vocabulary, constraint, instance),
    )


def _explained(error: ConstraintError, text: str, kind: Kind) -> ConstraintError:
    """The error with the place in a structural tag that it is about, if there is one."""
    if kind is not Kind.STRUCTURAL_TAG or not isinstance(error, InvalidGrammar):
        return error
    return fault_behind(error, text) or error


def _settings() -> settings.Settings:
    try:
        return settings.current()
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def _prepare(domain: TokenDomain, constraint: Constraint, own: settings.Settings) -> Preparation:
    """Compile twice, without a cache: the first time also pays for loading the engine and indexing the vocabulary."""
    compiler = ConstraintCompiler(
        domain, options=own.grammar_options(), cache_bytes=0, max_compile_seconds=own.max_compile_seconds
    )
    if isinstance(constraint, StructuralTag):
        compiler.compile_structural_tag(constraint.text)
        return compiler.prepare_structural_tag(constraint.text)
    compiler.compile(constraint)
    return compiler.prepare(constraint)


def _instance(compiled: CompiledGrammar, vocabulary: Vocabulary, constraint: Constraint, data: bytes) -> InstanceReport:
    schema: str | None = None
    if isinstance(constraint, OutputConstraint) and constraint.kind is ConstraintKind.JSON_SCHEMA:
        schema = constraint.source
    valid = None if schema is None else schema_valid(schema, data)
    try:
        refusal = refusal_of(compiled, vocabulary, data)
        bare = data.removesuffix(b"\n").removesuffix(b"\r")
        dropped = refusal is not None and len(bare) < len(data)
        if dropped:
            data, refusal = bare, refusal_of(compiled, vocabulary, bare)
    except ConstraintError as error:
        return InstanceReport(False, len(data), False, valid, None, None, problem_of(error))
    spelling = None if schema is None or refusal is None else respelled(compiled, schema, data)
    return InstanceReport(refusal is None, len(data), dropped, valid, spelling, refusal, None)
