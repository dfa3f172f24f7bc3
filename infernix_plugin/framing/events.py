"""What an output says, piece by piece; every front end writes its deltas from these and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call begins; calls are counted from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsText:
    """More of a call's arguments. All fragments of a call that ends, one after another, are one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is complete. A call without this event was cut off."""

    index: int


Event = ReasoningText | ContentText | CallStarted | ArgumentsText | CallEnded


@dataclass(slots=True)
class ReadCall:
    """A call as read so far; ``arguments`` is JSON only if it is ``complete``."""

    name: str
    arguments: str = ""
    complete: bool = False


@dataclass(slots=True)
class ReadOutput:
    """A whole output, or as much as there is: the sum of its events."""

    reasoning: str = ""
    content: str = ""
    calls: list[ReadCall] = field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Take more events in."""
        for event in events:
            match event:
                case ReasoningText(text):
                    self.reasoning += text
                case ContentText(text):
                    self.content += text
                case CallStarted(_, name):
                    self.calls.append(ReadCall(name))
                case ArgumentsText(index, text):
                    self.calls[index].arguments += text
                case CallEnded(index):
                    self.calls[index].complete = True

    @property
    def complete_calls(self) -> list[ReadCall]:
        """The calls that were not cut off."""
        return [call for call in self.calls if call.complete]
