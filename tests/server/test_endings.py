"""Every endpoint by every way in which a constrained output ends: what the answer and the log say."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import numpy as np
import pytest

from benchmarks.dashboard import History, panels
from benchmarks.server_figures import DASHBOARD
from benchmarks.server_watch import our_metrics
from tests.server.endings import BOTH, ENDPOINTS, running, send

pytestmark = pytest.mark.server

LINE = "Constrained request ended: "
FOREVER = {"regex": "[a-z]{5000,}"}
STREAMED = pytest.mark.parametrize(("endpoint", "stream"), BOTH, ids=[f"{name}-{stream}" for name, stream in BOTH])


@pytest.fixture
def log(tiny_server):
    """Return what the log says since the test began: a function of how many lines of ended outputs there will be."""
    before = len(tiny_server.log_text())

    def since(outputs):
        for _ in range(600):
            new = tiny_server.log_text()[before:]
            lines = [json.loads(line.partition(LINE)[2]) for line in new.splitlines() if LINE in line]
            if len(lines) >= outputs:
                break
            time.sleep(0.1)
        assert len(lines) == outputs
        assert not [line for line in new.splitlines() if " ERROR " in line]
        return lines

    return since


@pytest.fixture(scope="module")
def stop(tiny_model):
    return json.loads((tiny_model / "generation_config.json").read_text())["eos_token_id"][0]


def tag(*elements):
    return {
        "structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": elements}})
    }


def check(server, log, endpoint, stream, ending, **expected):
    """Send ``ending`` (a constraint and fields) and compare the records in the answer and in the log."""
    structured, fields = ending
    finish, outcome = expected.pop("finish"), expected.pop("outcome", None)
    ended = send(server.url, endpoint, structured, stream=stream, **fields)
    assert ended.status == 200, ended.text
    assert ended.error is None
    assert sorted(ended.choices) == list(range(ENDPOINTS[endpoint].outputs))
    for reason, record in ended.choices.values():
        assert reason == finish
        assert {name: record.get(name) for name in expected} == expected
        assert "error" not in record
        assert record["mask_positions"] > 0
    assert '"infernix' not in ended.text
    assert '"kv_transfer_params":{' not in ended.text.replace(" ", "")
    lines = log(len(ended.choices))
    records = [{name: line[name] for name in expected if name in line} for line in lines]
    assert {json.dumps(record, sort_keys=True) for record in records} == {
        json.dumps({name: value for name, value in expected.items() if value is not None}, sort_keys=True)
    }
    assert {line["outcome"] for line in lines} == {outcome or finish}


@STREAMED
def test_the_model_ends_it(tiny_server, log, endpoint, stream):
    ending = ({"choice": ["red"]}, {})
    check(
        tiny_server,
        log,
        endpoint,
        stream,
        ending,
        finish="stop",
        kind="choice",
        branch="content",
        complete=True,
        terminated=True,
    )


@STREAMED
def test_the_length_limit_cuts_it(tiny_server, log, endpoint, stream):
    ending = (FOREVER, {"tokens": 4})
    check(
        tiny_server,
        log,
        endpoint,
        stream,
        ending,
        finish="length",
        kind="regex",
        branch="content",
        complete=False,
        terminated=False,
    )


@STREAMED
def test_it_is_complete_where_the_length_limit_cuts(tiny_server, log, endpoint, stream):
    ending = ({"regex": "z"}, {"tokens": 1})
    check(
        tiny_server,
        log,
        endpoint,
        stream,
        ending,
        finish="length",
        kind="regex",
        branch="content",
        complete=True,
        terminated=False,
    )


@pytest.mark.parametrize(
    ("endpoint", "stream"), [(name, stream) for name, stream in BOTH if ENDPOINTS[name].is_conversation]
)
def test_the_length_limit_cuts_the_reasoning(tiny_server, log, endpoint, stream):
    """Two tokens cannot get past the closing token and the separator behind it, so what comes is undecided."""
    ending = ({"choice": ["red"]}, {"tokens": 2, "thinking": True})
    check(
        tiny_server,
        log,
        endpoint,
        stream,
        ending,
        finish="length",
        branch="undecided",
        complete=False,
        terminated=False,
    )


PING = {"type": "object", "properties": {}, "additionalProperties": False}
CALL = {"name": "ping", "strict": True}
FORCED = {
    "chat": {"tools": [{"type": "function", "function": {**CALL, "parameters": PING}}], "tool_choice": "required"},
    "responses": {"tools": [{"type": "function", **CALL, "parameters": PING}], "tool_choice": "required"},
    "messages": {"tools": [{**CALL, "input_schema": PING}], "tool_choice": {"type": "any"}},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", list(FORCED))
def test_a_forced_call_that_is_cut_in_the_reasoning_is_undecided(tiny_server, log, endpoint, stream):
    """Only a call can follow, but none was opened: every protocol says the same."""
    ending = ({}, {"structured_outputs": None, "tokens": 2, "thinking": True, **FORCED[endpoint]})
    expected = {"kind": "tools", "branch": "undecided", "complete": False, "terminated": False}
    check(tiny_server, log, endpoint, stream, ending, finish="length", **expected)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "chat n=3"])
def test_the_budget_of_reasoning_is_used_up(tiny_server, log, endpoint, stream):
    ending = ({"choice": ["red"]}, {"thinking": True, "thinking_token_budget": 3})
    check(tiny_server, log, endpoint, stream, ending, finish="stop", branch="content", complete=True, terminated=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "chat n=3", "completions"])
def test_a_stop_string_cuts_a_structural_tag(tiny_server, log, endpoint, stream):
    """Of other constraints it is refused. vLLM ends the output, not the model."""
    ending = (tag({"type": "const_string", "value": "aaabbb"}), {"stop": ["ab"]})
    check(
        tiny_server,
        log,
        endpoint,
        stream,
        ending,
        finish="stop",
        kind="structural_tag",
        branch=None,
        complete=False,
        terminated=False,
    )


@STREAMED
def test_a_dead_end(tiny_server, log, stop, endpoint, stream):
    """A stop token in the middle of what has to be written."""
    structured = tag({"type": "const_string", "value": "aaaa"}, {"type": "token", "token": stop})
    ended = send(tiny_server.url, endpoint, structured, stream=stream)
    assert ended.choices == {}
    assert "After 4 output tokens" in ended.error["message"]
    assert ended.status == (200 if stream else 422)
    assert ended.error.get("code") in ({"422"} if (endpoint, stream) == ("responses", True) else {422, None})
    lines = log(ENDPOINTS[endpoint].outputs)
    assert lines[0]["outcome"] == "dead_end"
    assert {line["outcome"] for line in lines} <= {"dead_end", "abort"}  # the other outputs are for nobody then
    assert {line["kind"] for line in lines} == {"structural_tag"}


@STREAMED
def test_a_constraint_that_is_refused_is_a_400_and_no_output(tiny_server, log, endpoint, stream):
    for structured in ({"regex": "(a"}, {"json": {"unknown": 1}}, {"choice": []}):
        ended = send(tiny_server.url, endpoint, structured, stream=stream)
        assert (ended.status, ended.choices) == (400, {})
        assert ended.error["message"]
    ignored = send(tiny_server.url, endpoint, {"choice": ["red"]}, stream=stream, regex="z")  # beside what holds it
    assert (ignored.status, ignored.choices) == (400, {})
    assert "It is a key of structured_outputs" in ignored.error["message"]
    log(0)


@STREAMED
def test_a_client_that_leaves(tiny_server, log, endpoint, stream):
    """Every output is an abort with what it did until then, whether the client read a stream or waited."""
    asked = ENDPOINTS[endpoint]
    body = {"model": "tiny", "stream": stream, **asked.body(FOREVER, 1500, False)}

    async def leave():
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            request = asyncio.create_task(client.post(f"{tiny_server.url}{asked.path}", json=body))
            while running(tiny_server) < asked.outputs and not request.done():
                await asyncio.sleep(0.05)
            request.cancel()
            await asyncio.wait([request])

    for attempt in range(1, 11):
        asyncio.run(leave())
        lines = log(asked.outputs * attempt)[-asked.outputs :]
        if all(line["outcome"] == "abort" for line in lines):
            break  # on a busy machine they may have ended before the client has left
    assert {line["outcome"] for line in lines} == {"abort"}
    assert {(line["kind"], line["complete"], line["terminated"]) for line in lines} == {("regex", False, False)}
    assert any(line["mask_positions"] for line in lines)


@pytest.mark.parametrize("stream", [False, True])
def test_outputs_of_one_request_that_end_differently(tiny_server, log, stream):
    """Some are one letter and end; the others have begun many. Each record is that of its own text."""
    structured = {"regex": "[a-m]|[n-z]{400}"}
    seen, sent = set(), 0
    while seen != {"stop", "length"} and sent < 20:
        ended = send(tiny_server.url, "chat", structured, stream=stream, tokens=12, n=8, return_token_ids=True)
        sent += 1
        for reason, record in ended.choices.values():
            seen.add(reason)
            whole = reason == "stop"
            assert (record["branch"], record["complete"], record["terminated"]) == ("content", whole, whole)
        assert sorted(ended.choices) == list(range(8))
    assert seen == {"stop", "length"}
    lines = log(8 * sent)
    for line in lines:
        assert (line["outcome"] == "stop") is line["complete"] is line["terminated"]


@pytest.mark.parametrize("name", ["guided_choice", "structured_outputs"])
def test_a_batch_of_chats_is_constrained_in_every_spelling(tiny_server, log, name):
    value = ["red"] if name == "guided_choice" else {"choice": ["red"]}
    body = ENDPOINTS["chat batch"].body({}, 20, False)
    del body["structured_outputs"]
    url = f"{tiny_server.url}/v1/chat/completions/batch"
    answer = httpx.post(url, json={"model": "tiny", **body, name: value}, timeout=300, trust_env=False)
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == ["red", "red"]
    log(2)
    twice = {"guided_choice": ["red"], "structured_outputs": {"choice": ["red"]}}
    answer = httpx.post(url, json={"model": "tiny", **body, **twice}, timeout=300, trust_env=False)
    assert answer.status_code == 400
    assert "guided_choice are both set" in answer.json()["error"]["message"]


def test_a_batch_of_chats_without_a_constraint_is_read_and_has_no_record(tiny_server, log):
    body = ENDPOINTS["chat batch"].body({}, 5, False)
    del body["structured_outputs"]
    url = f"{tiny_server.url}/v1/chat/completions/batch"
    answer = httpx.post(url, json={"model": "tiny", **body}, timeout=300, trust_env=False)
    assert answer.status_code == 200
    assert not any("constraint" in choice for choice in answer.json()["choices"])
    log(0)


def test_every_panel_of_the_dashboard_shows_something(tiny_server, log, stop):
    """Its own queries, over two scrapes of this server with an output, a dead end and a refusal before each."""
    dead_end = tag({"type": "const_string", "value": "aaaa"}, {"type": "token", "token": stop})
    scrapes = []
    for scrape in range(2):
        for structured in ({"choice": [f"panel {scrape}"]}, dead_end, {"regex": "(a"}):
            send(tiny_server.url, "chat", structured, stream=False)
        log(2 * scrape + 2)
        scrapes.append(our_metrics(tiny_server))
    history = History([0.0, 10.0], scrapes, 30.0)
    shown = {panel.title: [history.series(*query) for query in panel.queries] for panel in panels(DASHBOARD)}
    assert len(shown) == 12
    for title, queries in shown.items():
        for lines in queries:
            assert any(not np.isnan(values[-1]) for values in lines.values()), title
    (outputs,) = shown["Constrained outputs by outcome"]
    assert (outputs["stop"][-1], outputs["dead_end"][-1]) == (0.1, 0.1)
    (refused,) = shown["Refused with HTTP 400"]
    assert refused["InvalidRegex"][-1] == 0.1
