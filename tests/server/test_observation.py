"""What became of a constraint: in the responses of every protocol, in the log, and in the metrics of a real server."""

from __future__ import annotations

import json
import time

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.server

FIELDS = {
    *("kind", "branch", "complete", "terminated", "cache", "mask_positions", "mask_bytes", "illegal_drafts"),
    *("prepare_ms", "mask_ms", "accept_ms"),
}
ASK = [{"role": "user", "content": "q"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
CHOICE = {**NO_THINKING, "structured_outputs": {"choice": ["red", "blue"]}}
LONG = {**NO_THINKING, "structured_outputs": {"regex": "[a-z]{20000,}"}}  # no output ends by itself
CLOSED = {"type": "object", "additionalProperties": False}
BOOLEAN = {**CLOSED, "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
PING = {**CLOSED, "properties": {}}


def finished(answer, *, stream):
    """The finished choices of an answer, by index, and all that came."""
    if not stream:
        return {choice.index: choice for choice in answer.choices}, [answer]
    chunks = list(answer)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert all(not hasattr(choice, "constraint") for choice in choices if choice.finish_reason is None)
    return {choice.index: choice for choice in choices if choice.finish_reason is not None}, chunks


def chat(client, *, stream, **fields):
    return finished(client.chat.completions.create(model="tiny", messages=ASK, stream=stream, **fields), stream=stream)


def completions(client, *, stream, **fields):
    return finished(client.completions.create(model="tiny", stream=stream, **fields), stream=stream)


def response(client, *, stream, **fields):
    answer = client.responses.create(model="tiny", input="q", stream=stream, **fields)
    return next(event.response for event in answer if event.type == "response.completed") if stream else answer


def message(claude, *, stream, **fields):
    """The record of an answer of the Messages API, and its reason to stop."""
    answer = claude.messages.create(model="tiny", messages=ASK, stream=stream, **fields)
    if not stream:
        return getattr(answer, "constraint", None), answer.stop_reason
    events = list(answer)
    assert [getattr(event, "constraint", None) for event in events if event.type != "message_delta"].count(None) == (
        len(events) - 1
    )
    (end,) = (event for event in events if event.type == "message_delta")
    return getattr(end, "constraint", None), end.delta.stop_reason


def check(record, **expected):
    """A complete record with these values. What was computed was paid for, and counted."""
    assert set(record) == FIELDS
    assert {name: record[name] for name in expected} == expected
    assert record["mask_bytes"] >= record["mask_positions"] > 0
    assert record["cache"] in ("hit", "built", "waited")
    assert min(record["prepare_ms"], record["illegal_drafts"]) >= 0
    assert min(record["mask_ms"], record["accept_ms"]) > 0


ENDED = {"branch": "content", "complete": True, "terminated": True}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@STREAMS
def test_chat_has_one_record_for_each_choice(client, stream):
    choices, everything = chat(client, stream=stream, n=3, extra_body=CHOICE)
    assert sorted(choices) == [0, 1, 2]
    for choice in choices.values():
        check(choice.constraint, kind="choice", **ENDED)
        assert choice.finish_reason == "stop"
    assert "infernix" not in "".join(part.model_dump_json() for part in everything)
    assert all(getattr(part, "kv_transfer_params", None) is None for part in everything)


@STREAMS
def test_the_stream_is_otherwise_as_before(client, stream):
    """Usage, log-probabilities and text of a choice with a record are those of one without."""
    fields = {"seed": 5, "logprobs": True, "top_logprobs": 2, "temperature": 0}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    choices, everything = chat(client, stream=stream, extra_body=CHOICE, **fields)
    assert everything[-1].usage.completion_tokens > 0
    assert choices[0].logprobs.content[-1].top_logprobs
    assert [hasattr(part, "constraint") for part in everything] == [False] * len(everything)


@STREAMS
def test_completions_has_one_record_for_each_choice_of_each_prompt(client, stream):
    fields = {"prompt": ["a", "b"], "n": 2, "max_tokens": 20}
    body = {"structured_outputs": CHOICE["structured_outputs"]}
    choices, everything = completions(client, stream=stream, extra_body=body, **fields)
    assert sorted(choices) == [0, 1, 2, 3]
    for choice in choices.values():
        check(choice.constraint, kind="choice", **ENDED)
    assert "infernix" not in "".join(part.model_dump_json() for part in everything)


@STREAMS
def test_responses(client, stream):
    form = {"format": {"type": "json_schema", "name": "x", "schema": BOOLEAN}}
    answer = response(client, stream=stream, text=form, max_output_tokens=100, extra_body=NO_THINKING)
    check(answer.constraint, kind="json_schema", **ENDED)
    assert json.loads(answer.output_text)["ok"] in (True, False)
    assert getattr(answer, "kv_transfer_params", None) is None


@STREAMS
def test_messages(claude, stream):
    form = {"output_config": {"format": {"type": "json_schema", "schema": BOOLEAN}}}
    record, reason = message(
        claude, stream=stream, max_tokens=300, extra_body={**form, "thinking": {"type": "disabled"}}
    )
    check(record, kind="json_schema", **ENDED)
    assert reason == "end_turn"


@STREAMS
def test_calls(client, claude, stream):
    """Tools alone are a constraint too; the record says that the output became calls."""
    tool = {"type": "function", "function": {"name": "ping", "parameters": PING, "strict": True}}
    fields = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300}
    choices, _ = chat(client, stream=stream, extra_body=NO_THINKING, **fields)
    check(choices[0].constraint, kind="tools", branch="tools", complete=True, terminated=True)
    assert choices[0].finish_reason == "tool_calls"
    record, reason = message(
        claude,
        stream=stream,
        tools=[{"name": "ping", "input_schema": PING, "strict": True}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        max_tokens=300,
        extra_body={"thinking": {"type": "disabled"}},
    )
    check(record, kind="tools", branch="tools", complete=True, terminated=True)
    assert reason == "tool_use"


@STREAMS
def test_nothing_is_said_of_free_text(client, claude, stream):
    choices, _ = chat(client, stream=stream, max_tokens=3, extra_body=NO_THINKING)
    assert not hasattr(choices[0], "constraint")
    choices, _ = completions(client, stream=stream, prompt="a", max_tokens=3)
    assert not hasattr(choices[0], "constraint")
    assert not hasattr(response(client, stream=stream, max_output_tokens=3), "constraint")
    assert message(claude, stream=stream, max_tokens=3)[0] is None


@STREAMS
def test_the_length_limit_cuts_and_the_record_says_what_is_there(client, claude, stream):
    choices, _ = chat(client, stream=stream, max_tokens=4, extra_body=LONG)
    check(choices[0].constraint, kind="regex", branch="content", complete=False, terminated=False)
    assert choices[0].finish_reason == "length"
    answer = response(client, stream=stream, max_output_tokens=4, extra_body=LONG)
    check(answer.constraint, kind="regex", branch="content", complete=False, terminated=False)
    assert answer.status == "incomplete"
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
    record, reason = message(
        claude,
        stream=stream,
        max_tokens=4,
        extra_body={
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
            "thinking": {"type": "disabled"},
        },
    )
    check(record, kind="json_schema", complete=False, terminated=False)
    assert reason == "max_tokens"


@STREAMS
def test_a_complete_output_at_the_length_limit_is_complete_and_the_reason_stays(client, stream):
    body = {**NO_THINKING, "structured_outputs": {"choice": ["blue sky"]}, "return_token_ids": True}
    whole, _ = chat(client, stream=False, temperature=0, extra_body=body)
    tokens = len(whole[0].token_ids) - 1  # without the stop token
    choices, _ = chat(client, stream=stream, max_tokens=tokens, temperature=0, extra_body=body)
    check(choices[0].constraint, kind="choice", branch="content", complete=True, terminated=False)
    assert choices[0].finish_reason == "length"


def test_the_cut_inside_the_reasoning_is_undecided(client):
    body = {"structured_outputs": {"choice": ["red"]}}
    choices, _ = chat(client, stream=False, max_tokens=2, temperature=0, extra_body=body)
    check(choices[0].constraint, branch="undecided", complete=False, terminated=False)


def ended(server, request_id, outputs=1):
    """The log lines of one request; they may come a moment after the answer."""
    marker = "Constrained request ended: "
    for _ in range(600):
        lines = [line.partition(marker)[2] for line in server.log_text().splitlines() if marker in line]
        found = [one for one in map(json.loads, lines) if one["request_id"].startswith(request_id)]
        if len(found) >= outputs:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{len(found)} lines of {request_id}, not {outputs}")


def test_the_log_has_one_line_for_each_output(tiny_server, client):
    answer = client.chat.completions.create(model="tiny", messages=ASK, n=2, extra_body=CHOICE)
    lines = ended(tiny_server, answer.id, 2)
    assert sorted(line["index"] for line in lines) == [0, 1]
    for line in lines:
        record = answer.choices[line["index"]].constraint
        assert line == {"request_id": answer.id, "index": line["index"], "outcome": "stop", **record}


def totals(server):
    """All our samples as {(name, labels): value}."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(server.metrics_text())
        for sample in family.samples
        if sample.name.startswith("infernix_") and not sample.name.endswith("_created")
    }


def grown(server, before, name, **labels):
    key = (name, tuple(sorted(labels.items())))
    return totals(server).get(key, 0) - before.get(key, 0)


def test_a_client_that_leaves_is_an_abort_with_all_its_work(tiny_server, client):
    before = totals(tiny_server)
    stream = client.chat.completions.create(model="tiny", messages=ASK, stream=True, max_tokens=1500, extra_body=LONG)
    first = next(iter(stream))
    next(iter(stream))
    stream.close()
    (line,) = ended(tiny_server, first.id)
    assert (line["outcome"], line["kind"]) == ("abort", "regex")
    assert (line["complete"], line["terminated"]) == (False, False)
    assert line["mask_positions"] > 0
    labels = {"kind": "regex", "outcome": "abort"}
    assert grown(tiny_server, before, "infernix_requests_total", **labels) == 1
    assert grown(tiny_server, before, "infernix_mask_positions_total", kind="regex") == line["mask_positions"]


def test_a_dead_end_is_counted_and_logged_as_one(tiny_server, client, tiny_model):
    config = json.loads((tiny_model / "generation_config.json").read_text())
    elements = [{"type": "const_string", "value": "aaaa"}, {"type": "token", "token": config["eos_token_id"][0]}]
    tag = json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": elements}})
    before = totals(tiny_server)
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(
            model="tiny",
            messages=ASK,
            extra_body={**NO_THINKING, "structured_outputs": {"structural_tag": tag}},
            extra_headers={"X-Request-Id": "reaches-a-dead-end"},
        )
    (line,) = ended(tiny_server, "chatcmpl-reaches-a-dead-end")
    assert (line["outcome"], line["error"]) == ("dead_end", "ConstraintDeadEnd")
    assert line["mask_positions"] > 0
    labels = {"kind": "structural_tag", "outcome": "dead_end"}
    assert grown(tiny_server, before, "infernix_requests_total", **labels) == 1


SECRET = "xyzzyplugh"
TELLING = {
    "a name": {"json": {**CLOSED, "properties": {SECRET: {"const": 1}}, "required": [SECRET]}},
    "a value": {"json": {"const": SECRET}},
    "an unknown keyword": {"json": {SECRET: 1}},
    "a broken reference": {"json": {"$ref": f"#/$defs/{SECRET}"}},
    "a bad value of a keyword": {"json": {"properties": {SECRET: {"type": SECRET}}}},
    "a broken pattern": {"json": {"properties": {SECRET: {"pattern": f"({SECRET}"}}}},
    "what no document satisfies": {"json": {"allOf": [{"const": SECRET}, {"const": 2}]}},
    "no JSON": {"json": f"{{{SECRET}"},
    "a choice": {"choice": [SECRET]},
    "a regex": {"regex": SECRET},
    "a broken regex": {"regex": f"({SECRET}"},
    "a literal": {"grammar": f'root ::= "{SECRET}"'},
    "a useless rule": {"grammar": f'root ::= "a" | {SECRET}\n{SECRET} ::= {SECRET} "{SECRET}"\nfar{SECRET} ::= "b"'},
    "an undefined rule": {"grammar": f"root ::= {SECRET}"},
    "a broken grammar": {"grammar": f'root ::= "{SECRET}'},
    "Lark": {"grammar": f'start: {SECRET.upper()}\n{SECRET.upper()}: "{SECRET}"'},
    "broken Lark": {"grammar": f"start: {SECRET}"},
    "Lark of xgrammar": {"grammar": f'%ignore " "\nstart: "{SECRET}" {SECRET}'},
    "a structural tag": {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": SECRET}})},
    "a dead end": {
        "structural_tag": json.dumps(
            {
                "type": "structural_tag",
                "format": {
                    "type": "sequence",
                    "elements": [{"type": "const_string", "value": SECRET}, {"type": "token", "token": 0}],
                },
            }
        )
    },
}


def test_nothing_of_a_constraint_is_in_the_log_or_in_the_metrics(tiny_server, client):
    statuses = set()
    for structured in TELLING.values():
        body = {**NO_THINKING, "structured_outputs": structured}
        for stream in (False, True):
            try:
                chat(client, stream=stream, max_tokens=40, n=2, extra_body=body)
                statuses.add(200)
            except openai.APIStatusError as refused:
                statuses.add(refused.status_code)
            except openai.APIError:
                statuses.add("in the stream")
    parameters = {**CLOSED, "properties": {SECRET: {"type": "string"}}, "required": [SECRET]}
    for tool in (
        {"name": SECRET, "parameters": parameters, "strict": True},
        {"name": SECRET, "parameters": {SECRET: 1}, "strict": True},
    ):
        for choice in ("required", {"type": "function", "function": {"name": SECRET}}):
            fields = {"tools": [{"type": "function", "function": tool}], "tool_choice": choice, "max_tokens": 60}
            try:
                chat(client, stream=False, extra_body=NO_THINKING, **fields)
            except openai.BadRequestError:
                statuses.add(400)
    assert {200, 400} <= statuses
    told = [line for line in tiny_server.log_text().splitlines() if SECRET in line.lower()]
    assert told == []
    assert SECRET not in tiny_server.metrics_text()
