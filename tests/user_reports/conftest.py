"""What the tests of reports about servers share: the one real server, and requests to it without a client."""

from __future__ import annotations

import json

import httpx
import pytest

THINK_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


class Api:
    """Requests to the tiny server; the tests name the paths and the fields as the protocols do."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=600)

    def status(self, path: str, **body) -> tuple[int, dict]:
        """The status and the decoded answer."""
        answer = self._http.post(path, json={"model": "tiny", "seed": 1, **body})
        return answer.status_code, answer.json()

    def __call__(self, path: str, **body) -> dict:
        """The decoded answer of a request that has to succeed."""
        status, answer = self.status(path, **body)
        assert status == 200, answer
        return answer

    def events(self, path: str, **body) -> list[dict]:
        """The decoded events of a stream."""
        with self._http.stream("POST", path, json={"model": "tiny", "seed": 1, "stream": True, **body}) as answer:
            assert answer.status_code == 200, answer.read()
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def chat(self, *, stream: bool = False, **body) -> tuple[str, str, list[tuple[str, str]], str]:
        """One answer of Chat as (reasoning, content, calls, finish reason), however it came."""
        body = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 200, **body}
        if not stream:
            choice = self("/v1/chat/completions", **body)["choices"][0]
            message = choice["message"]
            calls = [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or []]
            return message["reasoning"] or "", message["content"] or "", calls, choice["finish_reason"]
        reasoning, content, finish = "", "", ""
        fragments: list[list[str]] = []
        for event in self.events("/v1/chat/completions", **body):
            for choice in event["choices"]:
                delta, finish = choice["delta"], choice["finish_reason"] or finish
                reasoning += delta.get("reasoning") or ""
                content += delta.get("content") or ""
                for one in delta.get("tool_calls") or []:
                    if one.get("id"):
                        fragments.append([one["function"]["name"], ""])
                    fragments[one["index"]][1] += one["function"].get("arguments") or ""
        return reasoning, content, [(name, arguments) for name, arguments in fragments], finish


@pytest.fixture(scope="session")
def api(tiny_server) -> Api:
    """Requests to the one tiny server."""
    return Api(tiny_server.url)
