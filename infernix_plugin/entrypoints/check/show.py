"""A report for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from infernix_plugin.entrypoints.check.instance import REST, Allowed, Refusal
from infernix_plugin.entrypoints.check.report import InstanceReport, Problem, Report


def show(report: Report, console: Console) -> None:
    """Print the report, one fact a line."""
    line = _Lines(console)
    vocabulary = f"{report.tokenizer} ({report.vocab_size:,} ids)"
    if report.error is not None:
        line.verdict("refused", "red")
        _problem(line, report.error)
        line.fact("kind", report.kind)
        line.fact("tokenizer", vocabulary)
        return
    line.verdict("supported", "green")
    line.fact("kind", report.kind)
    line.fact("tokenizer", vocabulary)
    line.fact("engine", report.engine)
    line.fact("compiled in", f"{report.compile_seconds:.4f} s")
    line.fact("size", f"{report.memory_bytes:,} bytes")
    empty = ", or the end: the empty output is allowed" if report.may_be_empty else ""
    line.fact("legal first", f"{report.first_tokens:,} tokens{empty}")
    for remark in report.warnings or ():
        line.fact("warning", f"{remark.message} (at {remark.location})")
    if report.grammar is not None:
        line.fact("grammar", "")
        console.print(Text(report.grammar))
    if report.instance is not None:
        _instance(line, report.instance)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console

    def verdict(self, word: str, colour: str) -> None:
        self._console.print(Text(word, style=f"bold {colour}"))

    def fact(self, name: str, value: str | None) -> None:
        if value is not None:
            self._console.print(Text.assemble((f"  {name:<12} ", "dim"), _printable(value)))


def _printable(text: str) -> str:
    """A file's control characters must not reach the terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _quoted(text: str) -> str:
    r"""In quotes; a ``\xNN`` that stands for a byte is not escaped once more."""
    return repr(text).replace(r"\\x", r"\x")


def _problem(line: _Lines, problem: Problem) -> None:
    line.fact("error", problem.type)
    line.fact("at", problem.location)
    line.fact("keyword", problem.keyword)
    line.fact("reason", problem.message)
    line.fact("hint", problem.hint)


def _instance(line: _Lines, instance: InstanceReport) -> None:
    if instance.accepted:
        line.verdict("instance accepted", "green")
    elif instance.error is not None:
        line.verdict("instance not judged", "red")
        _problem(line, instance.error)
    else:
        line.verdict("instance refused", "red")
    if instance.refusal is not None:
        _refusal(line, instance.refusal)
    line.fact("size", f"{instance.bytes:,} bytes")
    if instance.accepted and instance.line_end_dropped:
        line.fact("note", "without the line end at the end of the file")
    if instance.allowed_spelling is not None:
        line.fact("note", "the value is allowed, but only in another key order or spelling:")
        line.fact("", instance.allowed_spelling)
    elif instance.schema_valid and not instance.accepted:
        line.fact("note", "valid by jsonschema, but no allowed key order or spelling of it was found")


def _refusal(line: _Lines, refusal: Refusal) -> None:
    what = _quoted(refusal.text) if refusal.text else "the end"
    line.fact("at", f"byte {refusal.byte} (line {refusal.line}, column {refusal.column}): {what}")
    if refusal.token is not None:
        line.fact("token", f"number {refusal.token.index}, id {refusal.token.id}: {_quoted(refusal.token.text)}")
    line.fact("allowed", _allowed(refusal.allowed))


def _first(characters: str) -> str:
    return characters if characters == REST else _quoted(characters)


def _allowed(allowed: Allowed) -> str:
    parts = ["the end"] if allowed.end else []
    if allowed.tokens:
        examples = " ".join(map(_quoted, allowed.examples))
        more = " ..." if allowed.tokens > len(allowed.examples) else ""
        parts.append(f"{allowed.tokens:,} tokens that begin with {' '.join(map(_first, allowed.characters))}")
        parts.append(f"such as {examples}{more}")
    return "; ".join(parts) or "nothing that this vocabulary can write"
