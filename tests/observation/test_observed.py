"""Records on their way into responses, with vLLM's own response classes and both forms of its streams."""

import asyncio
import json
from types import SimpleNamespace

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
)
from vllm.outputs import CompletionOutput, RequestOutput

from infernix_plugin.entrypoints.observed import MessageWatch, Watch
from infernix_plugin.seams.terminal_observation import MERGE

RECORD = {"kind": "regex", "complete": True}


def result(*records):
    return SimpleNamespace(
        outputs=[SimpleNamespace(index=index, constraint=record) for index, record in enumerate(records)]
    )


def chunk(index=0, finish_reason=None, text="☂", **more):
    choice = ChatCompletionResponseStreamChoice(
        index=index, delta=DeltaMessage(content=text), finish_reason=finish_reason
    )
    return ChatCompletionStreamResponse(id="chat-1", created=1, model="m", choices=[choice], **more)


def event(body):
    return f"data: {body.model_dump_json(exclude_unset=True)}\n\n"


async def collect(results):
    return [each async for each in results]


def pull(watch, *results):
    async def source():
        for each in results:
            yield each

    return asyncio.run(collect(watch.outputs(source())))


def test_results_pass_unchanged():
    watch = Watch()
    results = [result(None), result(RECORD)]
    assert pull(watch, *results) == results


def test_a_client_that_leaves_closes_the_generation():
    """The watch holds no frame: when its reader goes, the generation ends at once, as it does without the watch."""
    closed = []

    async def generation():
        try:
            while True:
                yield result(None)
        finally:
            closed.append(True)

    async def read_one():
        source = generation()
        reading = Watch().outputs(source)
        await anext(reading)
        await source.aclose()
        try:
            await anext(reading)
        except StopAsyncIteration:
            return True

    assert asyncio.run(read_one())
    assert closed == [True]


def test_a_chunk_object_is_marked_once_and_where_it_finishes():
    watch = Watch()
    pull(watch, result(RECORD, None))
    going, other, last = chunk(), chunk(1, "stop"), chunk(0, "stop")
    for each in (going, other, last):
        watch.mark(each.choices)
    assert json.loads(last.model_dump_json(exclude_unset=True))["choices"][0]["constraint"] == RECORD
    assert "constraint" not in going.model_dump_json() + other.model_dump_json()
    again = chunk(0, "stop")
    watch.mark(again.choices)
    assert "constraint" not in again.model_dump_json()


def test_an_event_is_marked_and_says_nothing_else_new():
    watch = Watch()
    before = event(chunk(0, "stop"))
    assert watch.mark_event(before) is before, "nothing has finished"
    pull(watch, result(RECORD))
    for untouched in (event(chunk()), "data: [DONE]\n\n", event(chunk(3, "stop")), 'data: {"error":{"code":500}}\n\n'):
        assert watch.mark_event(untouched) is untouched
    marked = json.loads(watch.mark_event(before).removeprefix("data: "))
    assert marked["choices"][0].pop("constraint") == RECORD
    assert marked == json.loads(before.removeprefix("data: "))
    assert watch.mark_event(before) is before


def test_text_that_looks_like_a_record_is_left_alone():
    text = '"finish_reason":"stop","constraint":{"kind":1}'
    watch = Watch()
    pull(watch, result(RECORD))
    assert json.loads(watch.mark_event(event(chunk(text=text))).removeprefix("data: ")) == json.loads(
        event(chunk(text=text)).removeprefix("data: ")
    )
    messages = MessageWatch()
    assert json.loads(messages._take(event(chunk(text=text))).removeprefix("data: ")) == json.loads(
        event(chunk(text=text)).removeprefix("data: ")
    )
    assert messages.mark_event("event: message_delta\ndata: {}\n\n") == "event: message_delta\ndata: {}\n\n"


def through_messages(*chunks):
    async def source():
        for each in chunks:
            yield each

    watch = MessageWatch()
    return watch, asyncio.run(collect(watch.chunks(source())))


def test_messages_take_the_record_out_of_events_and_objects():
    for as_sent in (lambda body: body, event):
        finished = chunk(0, "stop")
        finished.choices[0].constraint = RECORD
        watch, seen = through_messages(
            as_sent(chunk()), as_sent(finished), *(["data: [DONE]\n\n"] if as_sent is event else [])
        )
        assert not any("constraint" in (each if isinstance(each, str) else each.model_dump_json()) for each in seen)
        start = 'event: message_start\ndata: {"type":"message_start"}\n\n'
        assert watch.mark_event(start) == start
        end = watch.mark_event('event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3}}\n\n')
        name, _, data = end.partition("\n")
        assert name == "event: message_delta"
        assert json.loads(data.removeprefix("data: ")) == {
            "type": "message_delta",
            "usage": {"output_tokens": 3},
            "constraint": RECORD,
        }


def output(text, *, constraint=None, finish_reason=None, index=0):
    completion = CompletionOutput(index, text, [1], None, None, finish_reason=finish_reason)
    completion.constraint = constraint
    return RequestOutput("r", None, [0], None, [completion], finish_reason is not None)


def test_the_record_survives_outputs_that_pile_up():
    original = RequestOutput.add
    add = MERGE.replace(original)
    for aggregate in (True, False):
        piled = output("a")
        add(piled, output("b", constraint=RECORD, finish_reason="stop"), aggregate)
        assert piled.outputs[0].constraint == RECORD
        add(piled, output("c", index=1), aggregate)
        assert [one.constraint for one in piled.outputs] == [RECORD, None]
        plain = output("a")
        original(plain, output("b", constraint=RECORD, finish_reason="stop"), True)
        assert plain.outputs[0].constraint is None, "vLLM merges every attribute now: the seam has no use"
