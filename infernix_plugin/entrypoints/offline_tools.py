"""Tools in offline scripts: what Chat Completions says of a request, for ``LLM.chat``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.sampling_params import StructuredOutputsParams

from infernix_plugin import settings
from infernix_plugin.entrypoints.tools.allowed import without_allowed_tools
from infernix_plugin.entrypoints.tools.joining import join_tools, unmarked
from infernix_plugin.entrypoints.tools.output_parser import OutputParser
from infernix_plugin.framing.events import ReadOutput
from infernix_plugin.structured_output.compilers import compiler_for


class OfflineTools:
    """The tools of a request, its choice among them, and what an answer that is no call has to be.

    ::

        calls = OfflineTools(llm, tools, tool_choice="required")
        params = SamplingParams(structured_outputs=calls.structured_outputs)
        for answer in llm.chat(messages, params, tools=calls.tools):
            read = calls.read(answer)
    """

    def __init__(self, llm: Any, tools: Sequence[Mapping[str, Any]], **fields: Any) -> None:
        """Make one constraint of them.

        Args:
            llm: vLLM's ``LLM``.
            tools: as in Chat Completions.
            fields: of Chat Completions: ``tool_choice``, ``parallel_tool_calls``, ``response_format``.

        Raises:
            VLLMValidationError: they contradict each other.
        """
        body = without_allowed_tools({"messages": [{"role": "user", "content": ""}], "tools": list(tools), **fields})
        self._request = ChatCompletionRequest.model_validate(body)
        self._config, self._tokenizer = llm.model_config, llm.get_tokenizer()
        own = settings.current()
        join_tools(self._request, compiler_for(self._config, self._tokenizer, own).domain, own)
        self.tools = unmarked(tools)
        """For ``LLM.chat``: without ``strict``, which is nothing to tell the model."""

    @property
    def structured_outputs(self) -> StructuredOutputsParams | None:
        """For ``SamplingParams``; ``None`` where nothing is constrained."""
        params: StructuredOutputsParams | None = self._request.extract_structured_outputs()
        return params

    def read(self, answer: Any, index: int = 0) -> ReadOutput:
        """Return the reasoning, the content and the calls of one output of vLLM's ``RequestOutput``."""
        parser = OutputParser(self._tokenizer, model_config=self._config)
        parser.set_prompt_token_ids(answer.prompt_token_ids)
        return parser.read(answer.outputs[index].token_ids, self._request)
