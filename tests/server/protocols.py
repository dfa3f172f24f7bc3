"""One request in the words of each protocol, sent by its official client, and one answer in common words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

QUESTION = "What is the weather?"


@dataclass(frozen=True)
class Ask:
    """What is asked of the model, in no protocol's words.

    ``structured`` is one field of vLLM's ``structured_outputs`` with its value; ``guided`` says it in the older words,
    and ``form`` in the protocol's own. ``choice`` is auto, none, required or the name of a tool.
    """

    structured: tuple[str, Any] | None = None
    spelled: str = "structured_outputs"
    tools: tuple[dict[str, Any], ...] = ()
    choice: str | None = None
    allowed: tuple[str, ...] | None = None
    parallel: bool = True


@dataclass
class Answer:
    """What came back, whole or put together from a stream."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""
    """stop, tool_calls, or length."""


class Protocol:
    """Sends what is asked; ``thinking`` is the chat template's."""

    def __init__(self, url: str) -> None:
        options = {"api_key": "none", "max_retries": 0, "timeout": 120}
        self.openai = openai.OpenAI(base_url=f"{url}/v1", **options)
        self.anthropic = anthropic.Anthropic(base_url=url, **options)

    def ask(self, ask: Ask, *, stream: bool, thinking: bool, seed: int) -> Answer:
        raise NotImplementedError

    @staticmethod
    def extra(ask: Ask, thinking: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": thinking}}
        if ask.structured and ask.spelled == "structured_outputs":
            body["structured_outputs"] = dict([ask.structured])
        elif ask.structured and ask.spelled == "guided":
            body[f"guided_{ask.structured[0]}"] = ask.structured[1]
        return body


class Chat(Protocol):
    """Chat Completions."""

    BUDGET = 30
    """Tokens of reasoning: the tiny model would go on for long."""

    def ask(self, ask: Ask, *, stream: bool, thinking: bool, seed: int) -> Answer:
        fields: dict[str, Any] = {}
        if ask.structured and ask.spelled == "form":
            fields["response_format"] = (
                {"type": "json_object"}
                if ask.structured[0] == "json_object"
                else {"type": "json_schema", "json_schema": {"name": "x", "schema": ask.structured[1]}}
            )
        if ask.tools:
            fields |= {"tools": [{"type": "function", "function": tool} for tool in ask.tools]}
            fields["tool_choice"] = self._choice(ask)
            fields |= {} if ask.parallel else {"parallel_tool_calls": False}
        extra = self.extra(ask, thinking) | ({"thinking_token_budget": self.BUDGET} if thinking else {})
        answer = self.openai.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=600,
            seed=seed,
            temperature=1.0,
            stream=stream,
            extra_body=extra,
            **fields,
        )
        return self._streamed(answer) if stream else self._whole(answer)

    @staticmethod
    def _choice(ask: Ask) -> Any:
        def named(name: str) -> dict[str, Any]:
            return {"type": "function", "function": {"name": name}}

        if ask.allowed is not None:
            allowed = {"mode": ask.choice, "tools": [named(name) for name in ask.allowed]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        return ask.choice if ask.choice in ("auto", "none", "required") else named(ask.choice or "")

    @staticmethod
    def _whole(answer: Any) -> Answer:
        (choice,) = answer.choices
        message = choice.message
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
        return Answer(getattr(message, "reasoning", None) or "", message.content or "", calls, choice.finish_reason)

    @staticmethod
    def _streamed(chunks: Any) -> Answer:
        answer = Answer()
        calls: list[list[str]] = []
        for chunk in chunks:
            for choice in chunk.choices:
                answer.reasoning += getattr(choice.delta, "reasoning", None) or ""
                answer.content += choice.delta.content or ""
                answer.finish = choice.finish_reason or answer.finish
                for call in choice.delta.tool_calls or []:
                    if call.id:
                        assert call.index == len(calls)
                        calls.append([call.function.name, ""])
                    calls[call.index][1] += call.function.arguments or ""
        answer.calls = [(name, arguments) for name, arguments in calls]
        return answer


class Completions(Protocol):
    """Completions: a raw prompt, whose text is no beginning of the output."""

    def ask(self, ask: Ask, *, stream: bool, thinking: bool, seed: int) -> Answer:
        extra = self.extra(ask, thinking)
        del extra["chat_template_kwargs"]
        fields: dict[str, Any] = {}
        if ask.structured and ask.spelled == "form":
            kind, value = ask.structured
            schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}
            extra["response_format"] = {"type": "json_object"} if kind == "json_object" else schema
        answer = self.openai.completions.create(
            model="tiny",
            prompt=QUESTION + (" <think>\n" if thinking else ""),
            max_tokens=600,
            seed=seed,
            temperature=1.0,
            stream=stream,
            extra_body=extra,
            **fields,
        )
        choices = [choice for chunk in (answer if stream else [answer]) for choice in chunk.choices]
        return Answer(content="".join(choice.text for choice in choices), finish=choices[-1].finish_reason)


class Responses(Protocol):
    """Responses. It has no budget of reasoning, so an answer may be cut there."""

    def ask(self, ask: Ask, *, stream: bool, thinking: bool, seed: int) -> Answer:
        fields: dict[str, Any] = {}
        if ask.structured and ask.spelled == "form":
            kind, value = ask.structured
            form = {"type": "json_object"} if kind == "json_object" else {"type": "json_schema", "schema": value}
            fields["text"] = {"format": form if kind == "json_object" else form | {"name": "x"}}
        if ask.tools:
            fields["tools"] = [{"type": "function", **tool} for tool in ask.tools]
            fields["tool_choice"] = self._choice(ask)
            fields |= {} if ask.parallel else {"parallel_tool_calls": False}
        answer = self.openai.responses.create(
            model="tiny",
            input=QUESTION,
            max_output_tokens=1200 if thinking else 600,
            temperature=1.0,
            stream=stream,
            extra_body=self.extra(ask, thinking) | {"seed": seed},
            **fields,
        )
        return self._streamed(list(answer)) if stream else self._whole(answer)

    @staticmethod
    def _choice(ask: Ask) -> Any:
        def named(name: str) -> dict[str, Any]:
            return {"type": "function", "name": name}

        if ask.allowed is not None:
            return {"type": "allowed_tools", "mode": ask.choice, "tools": [named(name) for name in ask.allowed]}
        return ask.choice if ask.choice in ("auto", "none", "required") else named(ask.choice or "")

    @staticmethod
    def _whole(answer: Any) -> Answer:
        found = Answer()
        for item in answer.output:
            match item.type:
                case "reasoning":
                    found.reasoning += "".join(part.text for part in item.content or [])
                case "message":
                    found.content += "".join(part.text for part in item.content)
                case "function_call":
                    found.calls.append((item.name, item.arguments))
        if answer.status == "completed":
            found.finish = "tool_calls" if found.calls else "stop"
        else:
            assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            found.finish = "length"
        return found

    def _streamed(self, events: list[Any]) -> Answer:
        """The last event holds the whole answer; the deltas before it must say the same."""
        final = self._whole(events[-1].response)

        def said(kind: str) -> str:
            return "".join(event.delta for event in events if event.type == kind)

        assert said("response.output_text.delta") == final.content
        assert said("response.reasoning_text.delta") == final.reasoning
        fragments: dict[str, str] = {}
        for event in events:
            if event.type == "response.function_call_arguments.delta":
                fragments[event.item_id] = fragments.get(event.item_id, "") + event.delta
        if final.finish != "length":
            assert list(fragments.values()) == [arguments for _, arguments in final.calls]
        return final


class Messages(Protocol):
    """Anthropic's Messages. Its budget of reasoning has a large least value, so an answer may be cut there."""

    def ask(self, ask: Ask, *, stream: bool, thinking: bool, seed: int) -> Answer:
        fields: dict[str, Any] = {}
        if ask.structured and ask.spelled == "form":
            fields["output_config"] = {"format": {"type": "json_schema", "schema": ask.structured[1]}}
        if ask.tools:
            names = {"parameters": "input_schema"}
            fields["tools"] = [{names.get(key, key): value for key, value in tool.items()} for tool in ask.tools]
            fields["tool_choice"] = self._choice(ask)
        options: dict[str, Any] = {
            "model": "tiny",
            "max_tokens": 1200 if thinking else 600,
            "messages": [{"role": "user", "content": f"{QUESTION} ({seed})"}],  # there is no seed in this API
            "extra_body": self.extra(ask, thinking) | {"temperature": 1.0},
            **fields,
        }
        if not stream:
            return self._whole(self.anthropic.messages.create(**options))
        fragments: dict[int, str] = {}
        with self.anthropic.messages.stream(**options) as events:
            for event in events:
                if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    fragments[event.index] = fragments.get(event.index, "") + event.delta.partial_json
            final = self._whole(events.get_final_message())
        if final.finish != "length":
            said = [json.loads(text or "{}") for text in fragments.values()]
            assert said == [json.loads(arguments) for _, arguments in final.calls]
        return final

    @staticmethod
    def _choice(ask: Ask) -> dict[str, Any]:
        kinds = {"auto": "auto", "none": "none", "required": "any"}
        choice: dict[str, Any] = {"type": kinds.get(ask.choice or "", "tool")}
        choice |= {"name": ask.choice} if choice["type"] == "tool" else {}
        return choice | ({} if ask.parallel else {"disable_parallel_tool_use": True})

    @staticmethod
    def _whole(answer: Any) -> Answer:
        found = Answer()
        for block in answer.content:
            match block.type:
                case "thinking":
                    found.reasoning += block.thinking
                case "text":
                    found.content += block.text
                case "tool_use":
                    found.calls.append((block.name, json.dumps(block.input)))
        found.finish = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}[answer.stop_reason]
        return found
