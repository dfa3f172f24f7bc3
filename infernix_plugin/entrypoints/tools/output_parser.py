"""What vLLM's servers call to read an output: reasoning, content and calls by our own reader."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall, FunctionCall
from vllm.parser.abstract_parser import Parser
from vllm.renderers.chat_utils import make_tool_call_id
from vllm.tool_parsers.abstract_tool_parser import ToolParser

from infernix_plugin import settings
from infernix_plugin.entrypoints.tools.request import contract_of
from infernix_plugin.framing.continuation import as_tokens
from infernix_plugin.framing.events import (
    ArgumentsText,
    CallStarted,
    ContentText,
    Event,
    ReadOutput,
    ReasoningText,
)
from infernix_plugin.framing.phases import CONTENT, THINK_CLOSE, THINK_OPEN, prompt_framing
from infernix_plugin.framing.reader import OutputForm, OutputReader
from infernix_plugin.framing.tools.call_reader import declared_functions
from infernix_plugin.framing.tools.contract import ToolContract
from infernix_plugin.framing.tools.grammar import Call, calls_of
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import TokenDomain
from infernix_plugin.structured_output.compilers import compiler_for
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.translation import Asked, asked_of


class InfernixToolParser(ToolParser):  # type: ignore[misc]
    """Tells vLLM that calls are read; :class:`OutputParser` reads them."""


class OutputParser(Parser):  # type: ignore[misc]
    """One choice of a request. Its contract is in the request's constraint; :mod:`.joining` put it there."""

    tool_parser_cls = InfernixToolParser

    def __init__(self, tokenizer: Any, tools: Any = None, *, model_config: Any = None, **options: Any) -> None:
        super().__init__(tokenizer, tools, model_config=model_config)
        self._model_config = model_config
        self._prompt: Sequence[int] | None = None
        self._reader: OutputReader | None = None

    @cached_property
    def domain(self) -> TokenDomain:
        """The vocabulary, which all requests of a model share."""
        return compiler_for(self._model_config, self.model_tokenizer, settings.current()).domain

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        """Take the prompt, which says in which phase the output begins."""
        self._prompt = prompt_token_ids

    def is_reasoning_end(self, input_ids: list[int]) -> bool:
        """Return whether an output behind these tokens begins with its content."""
        return not prompt_framing(input_ids, self.domain).thinking

    def parse(
        self,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> tuple[str | None, str | None, list[FunctionCall] | None]:
        """Read a whole output; the text of a call that was cut off is nowhere."""
        output = self.read(model_output_token_ids, request)
        calls = [
            FunctionCall(id=make_tool_call_id(), name=call.name, arguments=call.arguments)
            for call in output.complete_calls
        ]
        return output.reasoning or None, output.content or None, calls

    def read(self, token_ids: Sequence[int], request: Any) -> ReadOutput:
        """Read a whole output."""
        reader, output = self._new_reader(request), ReadOutput()
        output.add(reader.feed(token_ids))
        output.add(reader.finish())
        return output

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> DeltaMessage | None:
        """Read more of an output; ``None`` if it says nothing yet."""
        if prompt_token_ids is not None:
            self._prompt = prompt_token_ids
        if self._reader is None:
            self._reader = self._new_reader(request)
        events = self._reader.feed(delta_token_ids)
        if finished:
            events += self._reader.finish()
        return delta_of(events)

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many of the tokens are reasoning, the closing one included."""
        if self._prompt is None or not prompt_framing(self._prompt, self.domain).thinking:
            return 0
        close = self.domain.control_id(THINK_CLOSE)
        ids = list(token_ids)
        return ids.index(close) + 1 if close in ids else len(ids)

    def _new_reader(self, request: Any) -> OutputReader:
        asked = request.extract_structured_outputs()
        constraint = None if asked is None else asked_of(asked)
        reader = OutputReader(self._form(request, constraint), self.domain)
        if isinstance(constraint, FramedOutput) and constraint.has_calls and constraint.prefix:
            reader.go_on_from(as_tokens(constraint.prefix, self.domain))
        return reader

    def _form(self, request: Any, constraint: Asked | None) -> OutputForm:
        framing = CONTENT if self._prompt is None else prompt_framing(self._prompt, self.domain)
        match constraint:
            case FramedOutput(ToolContract() as contract, content):
                return OutputForm(framing, _functions(contract), enforced=True, content_is_free=content is None)
            case FramedOutput() | OutputConstraint():
                return OutputForm(framing, enforced=True, content_is_free=False)
        tools = contract_of(request, basic=False)
        return OutputForm(framing, declared_functions(tools) if tools else {})


def _functions(contract: ToolContract) -> dict[str, Call]:
    return {call.name: call for call in calls_of(contract, settings.current().grammar_options())}


def delta_of(events: Sequence[Event]) -> DeltaMessage | None:
    """Return the events as one of vLLM's deltas."""
    texts: dict[str, str] = {}
    calls: list[DeltaToolCall] = []
    for event in events:
        match event:
            case ReasoningText(text):
                texts["reasoning"] = texts.get("reasoning", "") + text
            case ContentText(text):
                texts["content"] = texts.get("content", "") + text
            case CallStarted(index, name):
                started = DeltaFunctionCall(name=name, arguments="")
                calls.append(DeltaToolCall(index=index, id=make_tool_call_id(), type="function", function=started))
            case ArgumentsText(index, text):
                if not calls or calls[-1].index != index:
                    calls.append(DeltaToolCall(index=index, function=DeltaFunctionCall(arguments="")))
                calls[-1].function.arguments += text
    # Only what is given to the constructor is written by vLLM.
    fields = {**texts, **({"tool_calls": calls} if calls else {})}
    return DeltaMessage(**fields) if fields else None


OWN_PARSERS = (None, "", "infernix", "qwen3", "qwen3_coder", "qwen3_xml")
"""Names that ask for Qwen's own form, or for nothing."""


def is_read_here(tokenizer: Any, *names: str | None) -> bool:
    """Return whether :class:`OutputParser` reads a model's outputs: it has the tokens, and no other parser is named."""
    known = tokenizer.get_vocab()
    return THINK_OPEN in known and THINK_CLOSE in known and all(name in OWN_PARSERS for name in names)
