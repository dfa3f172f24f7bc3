"""What the demo shows: one table for each engine, and a list of everything that was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich import box
from rich.markup import escape
from rich.table import Table

from infernix_plugin.entrypoints.demo.jobs import MISTAKE_LOCATION, Job
from infernix_plugin.entrypoints.demo.server import DraftCounts

OUTPUT_CHARACTERS = 100
COMPLAINT_CHARACTERS = 24


@dataclass(frozen=True)
class Answer:
    """What came back for one job. ``seconds`` is ``None`` where the job ran in a batch with others."""

    text: str
    finish_reason: str | None
    drafts: DraftCounts
    seconds: float | None


@dataclass(frozen=True)
class Refusal:
    """What came back for a request that must be refused: the HTTP status, OpenAI's ``param``, the message."""

    status: int
    location: str | None
    message: str
    seconds: float


@dataclass
class Report:
    """The results of one engine."""

    title: str
    problems: list[str] = field(default_factory=list)
    _rows: list[tuple[str, ...]] = field(default_factory=list)
    _drafted: int = 0

    def add(self, job: Job, way: str, answer: Answer) -> None:
        """Check an answer and keep it. An answer without a constraint is shown, not judged."""
        complaint = job.complaint(answer.text, answer.finish_reason)
        if job.kind is None:
            verdict = "by luck" if complaint is None else f"[dim]no: {_cut(complaint, COMPLAINT_CHARACTERS)}[/]"
        elif complaint is None:
            verdict = "[green]yes, so far[/]" if answer.finish_reason == "length" else "[green]yes[/]"
        else:
            verdict = f"[red]NO: {_cut(complaint, COMPLAINT_CHARACTERS)}[/]"
            self.problem(f"{job.title} ({way}): {complaint}; the output was {answer.text!r}")
        self._drafted += answer.drafts.drafted
        accepted = f"{answer.drafts.accepted} of {answer.drafts.drafted}"
        took = "batch" if answer.seconds is None else f"{answer.seconds:.2f} s"
        shown = _cut(_one_line(answer.text))
        self._rows.append((job.title, job.label, way, shown, verdict, answer.finish_reason or "", accepted, took))

    def add_refusal(self, title: str, way: str, refusal: Refusal) -> None:
        """Check that the demo's mistaken schema was refused, and that the mistake was located."""
        right = refusal.status == 400 and refusal.location == MISTAKE_LOCATION
        if not right:
            self.problem(f"{title} ({way}): {refusal}")
        shown = f"HTTP {refusal.status}, param {refusal.location}: {refusal.message}"
        verdict = "[green]refused[/]" if right else "[red]NO[/]"
        self._rows.append(
            (title, "json_schema", way, _cut(_one_line(shown)), verdict, "", "", f"{refusal.seconds:.2f} s")
        )

    def need_drafts(self) -> None:
        """Note a problem if no draft token was proposed: then nothing was shown about speculation."""
        if self._drafted == 0:
            self.problem("no draft token was proposed")

    def problem(self, text: str) -> None:
        """Note something that is wrong."""
        self.problems.append(f"{self.title}: {text}")

    def table(self) -> Table:
        """Return the results as a table for people; ``drafts`` are those accepted, of those proposed."""
        table = Table(title=self.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("job")
        table.add_column("constraint", no_wrap=True)
        table.add_column("via", no_wrap=True)
        table.add_column("output", overflow="fold")
        table.add_column("valid")
        table.add_column("finish", no_wrap=True)
        table.add_column("drafts", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        return table


def _one_line(text: str) -> str:
    """Return the text with line breaks and control characters spelled out."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _cut(text: str, characters: int = OUTPUT_CHARACTERS) -> str:
    """Return the text, shortened if need be, with nothing in it that rich would take for markup."""
    return escape(text if len(text) <= characters else text[: characters - 1] + "…")
