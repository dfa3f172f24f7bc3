"""The Responses API's stream: a call that was cut off is not published as a finished one."""

from __future__ import annotations

import functools
import json
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def close_current(self: Any) -> Any:
        state = self.state
        cut = state.current_state.name == "TOOL_CALL" and not _is_json(state.accumulated_text)
        events = original(self)
        if not cut:
            return events
        (done,) = (event for event in events if event.type == "response.output_item.done")
        self.output_items.remove(done.item)  # as in the answer that comes whole
        if done.item.type == "custom_tool_call":  # it has no status that could tell it from a finished one
            return []
        done.item.status, done.item.arguments = "incomplete", ""
        return [done]

    return close_current


def _is_json(text: str) -> bool:
    """Whether the arguments are whole: the bracket that closes them is written when the call ends."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


SEAM = Seam(
    module="vllm.entrypoints.openai.responses.streaming_events",
    attribute="SimpleStreamingEventProcessor.close_current",
    reason="vLLM 0.32 ends a call that was cut off like any other; 0.33 calls it incomplete, as it should.",
    replace=_replace,
    parameters=("self",),
    releases=((0, 32),),
)
