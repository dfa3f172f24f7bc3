"""What must not take a server down, and what happens when something does. Two API servers, next to no cache."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

from benchmarks.server_load import Load
from benchmarks.server_watch import our_metrics
from benchmarks.soak_server import soak, stop_token
from infernix_plugin.entrypoints.demo.server import serve
from tests.hostile.corpus import FAMILIES
from tests.server.endings import BOTH, ENDPOINTS, running, send, waiting
from tests.server.exploding import COMPILE, ENDLESS, LOGITS, MESSAGE, WORKER

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
CACHE_BYTES = 512 << 10
LINE = "Constrained request ended: "
ASK = [{"role": "user", "content": "q"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
FEW_BLOCKS = 14
"""Of the cache: as many as two outputs of the largest length need."""
SLOW = FAMILIES["schema"]["many patterns"]().source
"""Compiled for seconds."""
LONG = {"regex": "[a-z]{300,400}"}
LASTING = {"regex": "[a-z]{20000,}"}
MAX_RUNNING = 32
OPTIONS = (
    "--served-model-name=tiny",
    "--max-model-len=2048",
    f"--max-num-seqs={MAX_RUNNING}",
    "--enforce-eager",
    "--no-enable-prefix-caching",  # its blocks are as large as a step here, and then prompts run one after another
    "--enable-scale-out",
    "--no-log-error-stack",
    "--logits-processors=tests.server.exploding:Exploding",
    "--scheduler-cls=tests.server.exploding.Refusing",
    "--additional-config",
    json.dumps({"infernix": {"cache_bytes": CACHE_BYTES}}),
)


@pytest.fixture(scope="module")
def environment():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VLLM_SERVER_DEV_MODE", "1")  # for /pause
        patched.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        yield


@pytest.fixture(scope="module")
def server(tiny_model, tmp_path_factory, environment):
    log = tmp_path_factory.mktemp("faults") / "server.log"
    with serve([str(tiny_model), *OPTIONS, "--api-server-count=2"], log=log) as running:
        running.wait_until_healthy(lambda waited: None)
        yield running


def client_of(server):
    """A client with connections of its own, so that any of the API servers may get it."""
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        max_retries=0,
        timeout=600,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )


async def ask(client, structured, **fields):
    body = {**NO_THINKING, "structured_outputs": structured, **fields.pop("extra", {})}
    return await client.chat.completions.create(model="tiny", messages=ASK, extra_body=body, **fields)


def count(server, name, **labels):
    wanted = set(labels.items())
    return sum(value for (found, its), value in our_metrics(server).items() if found == name and wanted <= set(its))


def until(condition, what):
    """Wait for something that comes a moment after the answer."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"it never came: {what}")


def test_a_scrape_of_any_api_server_gives_the_sum_of_all(server):
    async def one(index):
        async with client_of(server) as client:
            await ask(client, {"choice": [f"word {index % 3}"]})

    async def several():
        await asyncio.gather(*(one(index) for index in range(16)))

    def took_part():
        return set(re.findall(r"\((ApiServer_\d) pid=\d+\).*Constrained request ended", server.log_text()))

    total = 0
    while total < 640 and len(took_part()) < 2:
        asyncio.run(several())
        total += 16
    assert took_part() == {"ApiServer_0", "ApiServer_1"}
    for _ in range(8):  # each is a new connection
        assert count(server, "infernix_requests_total", kind="choice", outcome="stop") == total
    assert count(server, "infernix_prepare_seconds_count", process="engine") == total
    assert count(server, "infernix_prepare_seconds_count", process="api") >= total
    assert count(server, "infernix_api_compile_queue") == 0


def test_a_soak_of_mixed_streams_and_faults(server, tiny_model):
    soaked = soak(server, Load(server.url, stop=stop_token(tiny_model), seed=3), streams=12, seconds=15.0)
    assert soaked.complaints == []
    assert soaked.tally.outputs >= 12
    assert soaked.tally.tokens > 0


def test_a_constraint_in_use_is_forgotten_and_its_stream_goes_on(server):
    """New constraints push it out of the cache; a further request has to build it again."""

    async def run():
        async with client_of(server) as client:
            going = await ask(client, LONG, stream=True, max_tokens=1500)
            text = "".join([choice.delta.content or "" for choice in (await anext(going)).choices])
            for group in range(20):
                new = [[f"{group} {each} {word} {'x' * 40}" for word in range(100)] for each in range(16)]
                await asyncio.gather(*(ask(client, {"choice": words}, max_tokens=1) for words in new))
                again = (await ask(client, LONG, max_tokens=1)).choices[0].constraint
                if again["cache"] == "built":
                    break
            assert again["cache"] == "built"
            async for chunk in going:
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
            return text

    assert re.fullmatch("[a-z]{300,400}", asyncio.run(run()))
    assert 0 < count(server, "infernix_engine_cache_bytes") <= CACHE_BYTES


def test_a_storm_of_constraints_that_fail_to_compile_disturbs_nobody(server):
    """Each is another one, so that no memory of refusals helps. Who writes meanwhile gets what was asked for."""
    before = count(server, "infernix_refusals_total")

    async def fails(client, index):
        structured = [
            {"regex": f"(storm {index}"},
            {"grammar": f"root ::= storm{index}"},
            {"json": {"allOf": [{"const": index}, {"const": -1}]}},
            {"json": {"type": "object", "properties": {f"storm{index}": {"unknown": 1}}}},
        ][index % 4]
        with pytest.raises(openai.BadRequestError):
            await ask(client, structured, stream=bool(index % 8 < 4))

    async def writes(client):
        answer = await ask(client, LONG, max_tokens=1500)
        return answer.choices[0].message.content

    async def run():
        async with client_of(server) as client:
            *texts, _ = await asyncio.gather(
                *(writes(client) for _ in range(4)),
                asyncio.gather(*(fails(client, index) for index in range(120))),
            )
        return texts

    for text in asyncio.run(run()):
        assert re.fullmatch("[a-z]{300,400}", text)
    assert count(server, "infernix_refusals_total") - before == 120
    assert count(server, "infernix_api_compile_queue") == 0


def test_clients_that_leave_together_leave_nothing_behind(server):
    before = count(server, "infernix_requests_total", kind="regex", outcome="abort")

    async def leaves(client):
        stream = await ask(client, LASTING, stream=True, max_tokens=ENDLESS)
        await anext(stream)
        await stream.close()

    async def run():
        async with client_of(server) as client:
            await asyncio.gather(*(leaves(client) for _ in range(16)))

    asyncio.run(run())
    until(
        lambda: count(server, "infernix_requests_total", kind="regex", outcome="abort") - before == 16,
        "each of them is an abort",
    )
    until(lambda: running(server) == 0, "none of them runs")


def test_a_compile_ends_when_its_client_leaves(server):
    """Left to itself it would count as built in the end."""
    before = count(server, "infernix_prepare_seconds_count", process="api")

    async def leave():
        async with client_of(server) as client:
            waiting = asyncio.create_task(ask(client, {"json": SLOW}))
            await asyncio.to_thread(until, lambda: count(server, "infernix_api_compile_queue") == 1, "it is compiled")
            waiting.cancel()

    asyncio.run(leave())
    until(lambda: count(server, "infernix_api_compile_queue") == 0, "it is given up")
    assert count(server, "infernix_prepare_seconds_count", process="api") == before


EXPLODES = [(name, stream) for name, stream in BOTH if name != "chat batch"]  # which has no vllm_xargs


def explode(server, endpoint, stream, what, structured, **fields):
    """Send a request with a fault of its own; return its answer, and the lines of its outputs."""
    xargs = {"vllm_xargs": {"explode": what}}
    if endpoint == "tokens":
        body = ENDPOINTS[endpoint].body(structured, fields.pop("tokens", 60), False)
        xargs = {"sampling_params": {**body["sampling_params"], "extra_args": {"explode": what}}}
    with log_of(server) as log:
        answer = send(server.url, endpoint, structured, stream=stream, **fields, **xargs)
        return answer, log(ENDPOINTS[endpoint].outputs)


@contextmanager
def log_of(server):
    """Give a function that waits for as many lines of outputs as there should be since then, and returns them."""
    before = len(server.log_text())

    def lines(outputs):
        def found():
            new = server.log_text()[before:].splitlines()
            return [json.loads(line.partition(LINE)[2]) for line in new if LINE in line]

        until(lambda: len(found()) >= outputs, f"{outputs} lines")
        assert len(found()) == outputs
        return found()

    yield lines


@pytest.mark.parametrize(("endpoint", "stream"), EXPLODES, ids=[f"{name}-{stream}" for name, stream in EXPLODES])
def test_logits_that_are_not_finite_are_told_and_counted(server, endpoint, stream):
    before = count(server, "infernix_requests_total", outcome="non_finite")
    answer, lines = explode(server, endpoint, stream, LOGITS, {"regex": "[a-z]{500,}"})
    assert (answer.status, answer.choices) == (200 if stream else 500, {})
    assert "the model produced no finite probabilities" in answer.error["message"]
    outcomes = Counter(line["outcome"] for line in lines)
    assert outcomes["non_finite"] > 0
    assert set(outcomes) <= {"non_finite", "abort"}  # the other outputs of a request are for nobody then
    assert all(line["kind"] == "regex" and not line["terminated"] for line in lines)
    assert {line.get("error") for line in lines if line["outcome"] == "non_finite"} == {"NonFiniteLogits"}
    assert count(server, "infernix_requests_total", outcome="non_finite") - before == outcomes["non_finite"]


@pytest.mark.parametrize(("endpoint", "stream"), EXPLODES, ids=[f"{name}-{stream}" for name, stream in EXPLODES])
def test_what_only_the_engine_core_refuses_is_told_to_the_client_alone(server, endpoint, stream):
    """The message quotes the constraint, and with a traceback it would be in the log many times."""
    secret, errors = "xyzzyplugh", server.error_lines()
    before = count(server, "infernix_requests_total", outcome="refused")
    answer, lines = explode(server, endpoint, stream, COMPILE, {"regex": secret})
    assert (answer.status, answer.choices) == (200 if stream else 400, {})
    assert "this is refused: " in answer.error["message"]
    assert secret in answer.error["message"]
    outcomes = Counter(line["outcome"] for line in lines)
    assert outcomes["refused"] > 0
    assert set(outcomes) <= {"refused", "abort"}
    assert {line.get("error") for line in lines if line["outcome"] == "refused"} == {"InvalidRegex"}
    assert count(server, "infernix_requests_total", outcome="refused") - before == outcomes["refused"]
    assert secret not in server.log_text()
    assert secret not in server.metrics_text()
    assert server.error_lines() == errors


ABORTED = [(name, stream) for name, stream in BOTH if name not in ("responses", "messages")]
"""vLLM has no word for an abort in the protocols of the others."""


def refresh_gauges(server):
    """Wait until nothing is said to run. vLLM's gauges keep what they showed before a pause, until a step follows."""
    send(server.url, "chat", {"choice": ["red"]}, stream=False)
    until(lambda: running(server) == waiting(server) == 0, "nothing runs")


def pause(server):
    """Let the engine abort everything, and go on."""
    httpx.post(f"{server.url}/pause", timeout=60, trust_env=False).raise_for_status()
    httpx.post(f"{server.url}/resume", timeout=60, trust_env=False).raise_for_status()


def check_that_all_are_aborted(answer, outputs):
    assert answer.status == 200
    assert sorted(answer.choices) == list(range(outputs))
    assert {reason for reason, _ in answer.choices.values()} == {"abort"}
    for _, record in answer.choices.values():
        assert (record["kind"], record["complete"], record["terminated"]) == ("regex", False, False)


@pytest.mark.parametrize(("endpoint", "stream"), ABORTED, ids=[f"{name}-{stream}" for name, stream in ABORTED])
def test_a_pause_ends_what_runs_and_every_output_has_its_record(server, endpoint, stream):
    outputs = ENDPOINTS[endpoint].outputs
    refresh_gauges(server)
    with log_of(server) as log, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(send, server.url, endpoint, LASTING, stream=stream, tokens=ENDLESS)
        until(lambda: running(server) >= outputs, "it runs")
        pause(server)
        check_that_all_are_aborted(answer.result(), outputs)
        assert {line["outcome"] for line in log(outputs)} == {"abort"}


@pytest.mark.parametrize(("endpoint", "stream"), ABORTED, ids=[f"{name}-{stream}" for name, stream in ABORTED])
def test_a_pause_ends_what_has_no_token_yet_and_every_output_has_its_record(server, endpoint, stream):
    """Others run in its place. In vLLM's streams of text, a choice that never wrote never ends either."""
    outputs = ENDPOINTS[endpoint].outputs
    refresh_gauges(server)
    with log_of(server) as log, ThreadPoolExecutor(2) as threads:
        others = threads.submit(send, server.url, "chat", LASTING, stream=True, tokens=ENDLESS, n=MAX_RUNNING)
        until(lambda: running(server) >= MAX_RUNNING, "the others run")
        answer = threads.submit(send, server.url, endpoint, LASTING, stream=stream, tokens=ENDLESS)
        until(lambda: waiting(server) >= outputs, "it waits")
        pause(server)
        check_that_all_are_aborted(others.result(), MAX_RUNNING)
        check_that_all_are_aborted(answer.result(), outputs)
        log(MAX_RUNNING + outputs)
    assert {record["mask_positions"] for _, record in answer.result().choices.values()} == {0}


def test_a_fault_in_the_worker_ends_every_request_with_an_error_and_a_restart_is_clean(server, tiny_model, tmp_path):
    """This test ends the server. vLLM's engine core cannot go on after its worker failed, and must not pretend to."""

    writing = asyncio.Barrier(9)

    async def writes(client):
        try:
            stream = await ask(client, LASTING, stream=True, max_tokens=ENDLESS)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await writing.wait()
            async for _ in stream:
                pass
        except (openai.APIError, httpx.HTTPError) as error:
            await writing.abort()  # whoever still waits for this one to begin does not wait any longer
            return error
        return None

    async def explode(client):
        await writing.wait()
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            await ask(client, {"choice": ["red"]}, extra={"vllm_xargs": {"explode": WORKER}})

    async def run():
        async with client_of(server) as client:
            await ask(client, {"choice": ["red"]})  # what explodes has nothing to wait for
            *errors, _ = await asyncio.gather(*(writes(client) for _ in range(8)), explode(client))
        return errors

    assert all(asyncio.run(run())), "a stream that was cut ended as if it were whole"
    assert server.wait(60) != 0
    assert MESSAGE in server.log_text()
    with serve(
        [str(tiny_model), *OPTIONS, f"--num-gpu-blocks-override={FEW_BLOCKS}"],
        log=tmp_path / "again.log",
        port=int(server.url.rpartition(":")[2]),
    ) as again:
        again.wait_until_healthy(lambda waited: None)

        async def one():
            async with client_of(again) as client:
                return (await ask(client, {"choice": ["red"]})).choices[0]

        choice = asyncio.run(one())
        assert choice.message.content == "red"
        assert choice.constraint["cache"] == "built"
        assert count(again, "infernix_requests_total") == 1
        check_that_preempted_outputs_are_whole(again)
        check_that_it_waits_for_no_compile(again)


def check_that_preempted_outputs_are_whole(server):
    """The cache has room for three prompts that stay in their first block, and outputs go on into the next one."""
    body = {"model": "tiny", "prompt": [7] * 560, "n": 4, "max_tokens": 1500, "structured_outputs": LONG}
    asked = 0
    while not preempted(server):  # most likely in the first round
        assert asked < 20
        asked += 1
        with log_of(server) as log:
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=300, trust_env=False).json()
            lines = log(4)
        for choice in answer["choices"]:
            assert re.fullmatch(LONG["regex"], choice["text"])
            assert choice["finish_reason"] == "stop"
            assert choice["constraint"]["terminated"]
        assert sorted(choice["index"] for choice in answer["choices"]) == list(range(4))
        assert sorted(line["index"] for line in lines) == list(range(4))
        assert {line["request_id"] for line in lines} == {f"{answer['id']}-0"}
    assert count(server, "infernix_requests_total", kind="regex", outcome="stop") == 4 * asked


def preempted(server):
    found = re.findall(r"^vllm:num_preemptions_total\{.*\} (\S+)$", server.metrics_text(), re.MULTILINE)
    return sum(map(float, found))


def check_that_it_waits_for_no_compile(server):
    """A server that is stopped answers the clients that it compiles for, and does not finish that first."""
    slow = {"model": "tiny", "prompt": "q", "structured_outputs": {"json": SLOW}}
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(httpx.post, f"{server.url}/v1/completions", json=slow, timeout=300, trust_env=False)
        until(lambda: count(server, "infernix_api_compile_queue") == 1, "it is compiled")
        os.kill(server.pid, signal.SIGTERM)
        answer = sent.result()
    assert answer.status_code == 500
    assert "the server ends" in answer.json()["error"]["message"]
    server.wait(60)
